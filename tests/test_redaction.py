"""A secret that passes through a recorded call is nowhere in the session's files."""

import asyncio
import re

import pytest

from durable_agent import (
    REDACTED,
    REDACTED_NAMES,
    NotApplied,
    checkpointed_llm,
    checkpointed_tool,
    configure,
    conversation,
    inspect_session,
    report,
    session,
)
from durable_agent._redaction import without_secrets
from tests.disks import crash

#: As keys of services look, and as nobody's do.
SECRET = "sk-proj-THISisNOTaKEY0123456789"
PLAIN = "correct horse battery"

pytestmark = pytest.mark.filterwarnings(
    "ignore::durable_agent.errors.FinishedSessionWarning"
)


def files_of(root):
    """All bytes below a directory, and all names."""
    found = [p.read_bytes() for p in root.rglob("*") if p.is_file()]
    return b"".join(found) + "".join(map(str, root.rglob("*"))).encode()


def arguments(root):
    with inspect_session("s", root=root) as seen:
        return [
            e.data["args"]
            for e in seen.events()
            if e.type in {"tool/call", "llm/request"}
        ]


@pytest.mark.parametrize("name", sorted(REDACTED_NAMES))
@pytest.mark.parametrize("decorate", [checkpointed_tool, checkpointed_llm])
def test_an_argument_with_the_name_of_a_secret_is_redacted(root, name, decorate):
    got = []

    @decorate
    def call(prompt, **options):
        got.append(options)
        return "ok"

    with session("s", root=root):
        call("hi", **{name: PLAIN})

    assert got == [{name: PLAIN}], "the body gets it"
    assert PLAIN.encode() not in files_of(root)
    assert arguments(root) == [{"prompt": "hi", "options": {name: {"$redacted": True}}}]


@pytest.mark.parametrize(
    "name", ["api_key", "API-Key", "apiKey", "X-Api-Key", "Authorization", "PASSWORD"]
)
@pytest.mark.parametrize(
    "held",
    [
        lambda name: {"headers": {name: PLAIN, "Accept": "*"}},
        lambda name: [{"deep": {"er": [{name: PLAIN}]}}],
        lambda name: [(name, PLAIN), ("Accept", "*")],
        lambda name: {1: {name: PLAIN}},
        lambda name: {name: {"value": PLAIN, "scheme": PLAIN}},
    ],
    ids=["headers", "deep", "pairs", "other keys", "a dict"],
)
def test_members_with_the_name_of_a_secret_are_redacted_at_any_depth(root, name, held):
    @checkpointed_tool
    def fetch(config):
        return "ok"

    with session("s", root=root):
        fetch(held(name))

    assert PLAIN.encode() not in files_of(root)
    assert b"$redacted" in files_of(root)


@pytest.mark.parametrize("value", [None, True, False, "", [], {}])
def test_what_says_that_there_is_no_secret_is_kept(root, value):
    @checkpointed_tool
    def fetch(token, config):
        return "ok"

    with session("s", root=root):
        fetch(token=value, config={"password": value})

    assert arguments(root) == [{"token": value, "config": {"password": value}}]


@pytest.mark.parametrize(
    "name", ["max_tokens", "tokens", "token_count", "secretary", "key", "keyboard"]
)
def test_names_that_only_resemble_one_are_recorded(root, name):
    @checkpointed_tool
    def fetch(**options):
        return "ok"

    with session("s", root=root):
        fetch(**{name: 17})

    assert arguments(root) == [{"options": {name: 17}}]


@pytest.mark.parametrize(
    ("url", "recorded"),
    [
        ("https://joan:hunter22@example.com/x", "https://<redacted>@example.com/x"),
        (
            "https://example.com/?q=cats&api_key=hunter22&n=1",
            "https://example.com/?q=cats&api_key=<redacted>&n=1",
        ),
        (
            "postgresql://app:hunter22@db/app?sslmode=require",
            "postgresql://<redacted>@db/app?sslmode=require",
        ),
        (
            "https://b.example.com/o?X-Amz-Signature=hunter22",
            "https://b.example.com/o?X-Amz-Signature=<redacted>",
        ),
        ("https://example.com/a?mail=joan@example.com", None),
        ("https://example.com/@joan?monkey=1&page_token=2&key=3", None),
        ("https://example.com/?the=basic authentication scheme", None),
    ],
)
def test_what_urls_carry_is_redacted(root, url, recorded):
    @checkpointed_tool
    def fetch(url, more):
        return "ok"

    with session("s", root=root):
        fetch(url, {"next": [url]})

    expected = recorded or url
    assert arguments(root) == [{"url": expected, "more": {"next": [expected]}}]


@pytest.mark.parametrize(
    "text",
    [
        f"Incorrect API key provided: {SECRET}.",
        f"401 for https://joan:{SECRET}@example.com/",
        f"GET /x?access_token={SECRET}&n=1 failed",
        f"header was Authorization: Bearer {SECRET}",
        f"proxy said Basic {SECRET}",
    ],
)
def test_texts_of_errors_lose_what_looks_like_a_secret(root, text):
    class Refused(Exception):
        def __init__(self, message, body):
            super().__init__(message)
            self.body = body

    @checkpointed_tool
    def fetch():
        raise Refused(text, {"detail": [text], "token": PLAIN})

    with session("s", root=root) as s:
        with pytest.raises(Refused) as live:
            fetch()
        crash(s)

    assert str(live.value) == text, "the caller gets it as it is"
    assert SECRET.encode() not in files_of(root)
    assert PLAIN.encode() not in files_of(root)
    with session("s", root=root):
        with pytest.raises(Exception, match="<redacted>") as again:
            fetch()
        assert SECRET not in str(again.value)


def test_a_secret_of_an_argument_is_left_out_of_later_errors_and_requests(root):
    @checkpointed_tool
    def login(user, password):
        raise PermissionError(f"no {user} with {password!r}")

    @checkpointed_llm
    def ask(messages):
        return "sorry"

    def run():
        try:
            login("joan", PLAIN)
        except PermissionError as error:
            return ask([{"role": "user", "content": f"it said: {error}"}])

    with session("s", root=root) as s:
        assert run() == "sorry"
        crash(s)
    assert PLAIN.encode() not in files_of(root)
    with session("s", root=root):
        assert run() == "sorry"
    with conversation("s", root=root) as s:
        (told, _) = s.messages()

    assert told["content"] == "it said: no joan with '<redacted>'"


def test_an_error_with_a_secret_that_reaches_a_request_does_not_diverge(root):
    """The first run has its text whole, the replay has it redacted."""

    @checkpointed_tool(effect="read_only")
    def fetch():
        raise ValueError(f"Incorrect API key provided: {SECRET}")

    sent = []

    @checkpointed_llm
    def ask(messages):
        sent.append(messages)
        return "sorry"

    def run(n):
        said = []
        for _ in range(n):
            try:
                fetch()
            except ValueError as error:
                said.append({"role": "user", "content": f"{error!r} and {error}"})
            said.append({"role": "assistant", "content": ask(list(said))})

    with session("s", root=root) as s:
        run(2)
        crash(s)
    with session("s", root=root) as s:
        run(3)

    assert [len(messages) for messages in sent] == [1, 3, 5]


@pytest.mark.parametrize("explicit", [True, False])
def test_a_secret_is_no_part_of_identity(root, explicit):
    """A key that is changed between two runs changes no call."""
    ran = []
    options = {"redact": ("to", "token")} if explicit else {}

    @checkpointed_tool(**options)
    def send(to, token):
        ran.append(token)

    with session("s", root=root) as s:
        send("ann", "first-key-of-all")
        crash(s)
    with session("s", root=root):
        send("ann", "second-key-of-all")

    assert ran == ["first-key-of-all"]


def test_handlers_and_reports_never_get_a_recorded_secret(root):
    asked = []

    @checkpointed_tool(verify=lambda call: asked.append(call) or NotApplied())
    def send(to, api_key, config):
        if not asked:
            raise KeyboardInterrupt

    with session("s", root=root) as s:
        with pytest.raises(KeyboardInterrupt):
            send("ann", SECRET, {"token": PLAIN})
        crash(s)
    with session("s", root=root) as s:
        s.in_doubt()
        send("ann", SECRET, {"token": PLAIN})
        shown = report.text(s) + s._repr_html_()

    assert [{*call.arguments} for call in asked] == [{"to", "config"}]
    assert SECRET not in shown
    assert PLAIN not in shown


def test_a_redacted_value_reads_back_as_no_value(root):
    @checkpointed_tool
    def fetch(config):
        raise KeyboardInterrupt

    with session("s", root=root) as s:
        with pytest.raises(KeyboardInterrupt):
            fetch({"token": PLAIN, "n": 1})
        crash(s)
    with session("s", root=root) as s:
        (call,) = s.in_doubt()
        crash(s)

    assert call.arguments == {"config": {"token": REDACTED, "n": 1}}
    assert repr(REDACTED) == "<redacted>"


def test_names_can_be_changed_and_switched_off(root):
    @checkpointed_tool
    def fetch(**options):
        return "ok"

    configure(redact_names=[*REDACTED_NAMES, "badge no"])
    with session("s", root=root):
        fetch(badge_no=4711, token=1)
    configure(redact_names=())
    with session("t", root=root):
        fetch(badge_no=4711, token="shown to all")

    assert arguments(root) == [
        {"options": {"badge_no": {"$redacted": True}, "token": {"$redacted": True}}}
    ]
    assert b"shown to all" in files_of(root)
    for wrong in ("token", [1]):
        with pytest.raises(TypeError, match="no collection of names"):
            configure(redact_names=wrong)


def test_messages_are_recorded_as_they_are_sent(root):
    """A model that asks what is in a URL has to be told it again."""
    url = "https://example.com/?signature=abcdefgh"

    @checkpointed_llm
    def ask(messages, extra_headers):
        return "ok"

    messages = [{"role": "user", "content": url, "token": "of the text"}]
    with session("s", root=root):
        ask(messages, {"Authorization": f"Bearer {SECRET}"})

    (recorded,) = arguments(root)
    assert recorded["messages"] == messages
    assert SECRET.encode() not in files_of(root)


def test_async_calls_and_streams_are_no_exception(root):
    @checkpointed_tool
    async def fetch(token):
        raise ValueError(f"bad {token}")

    @checkpointed_llm
    async def ask(prompt, api_key):
        yield "one"
        raise ValueError(f"bad {api_key}")

    async def main():
        async with session("s", root=root):
            with pytest.raises(ValueError, match=PLAIN):
                await fetch(PLAIN)
            with pytest.raises(ValueError, match=SECRET):
                async for _ in ask("hi", SECRET):
                    pass

    asyncio.run(main())

    assert PLAIN.encode() not in files_of(root)
    assert SECRET.encode() not in files_of(root)


@pytest.mark.parametrize(
    "raw",
    [
        b'"https://a:b@c/?token=abc Bearer abcdefghij0123456 sk-abcdefghijklmnop12"',
        b'"?sig=<redacted>&key=1"',
        b'"no secret at all"',
    ],
)
def test_redacting_twice_is_redacting_once(raw):
    once = without_secrets(raw)

    assert without_secrets(once) == once
    assert re.search(rb"abcdefghij|a:b@", once) is None
