"""What Google's Gemini API (generateContent) accepts as ``contents``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.providers.rules_base import UTF8, Judgement, Rule, check_bytes, table

if TYPE_CHECKING:
    from tests.providers.rules_base import Ids

_REFERENCE = "https://ai.google.dev/api/caching#Content"
_CALLING = "https://ai.google.dev/gemini-api/docs/function-calling"
_SIGNATURES = "https://ai.google.dev/gemini-api/docs/thought-signatures"
_DATA = {
    "text",
    "inlineData",
    "functionCall",
    "functionResponse",
    "fileData",
    "executableCode",
    "codeExecutionResult",
}

RULES = table(
    UTF8,
    Rule(
        "role", "the role is user or model (function for results, of old)", _REFERENCE
    ),
    Rule(
        "parts",
        "a content has at least one part",
        '"it must include at least one parts field", '
        "https://github.com/genkit-ai/genkit/issues/3690",
    ),
    Rule(
        "data",
        "a part holds exactly one kind of data",
        "\"required oneof field 'data' must have one initialized field\", "
        "https://github.com/boldsoftware/sketch/issues/68",
    ),
    Rule(
        "call-shape",
        "a functionCall has a name, and its args are an object, if given",
        _REFERENCE,
    ),
    Rule(
        "response-shape",
        "a functionResponse has a name and an object as response",
        _REFERENCE,
    ),
    Rule(
        "place",
        "a functionCall is the model's, a functionResponse is not",
        _CALLING,
    ),
    Rule(
        "counts",
        "the content after the model's functionCalls holds as many functionResponses",
        '"Please ensure that the number of function response parts is equal to the '
        'number of function call parts of the function call turn.", '
        "https://github.com/google-gemini/gemini-cli/issues/14590",
    ),
    Rule(
        "response-after-call",
        "functionResponses stand directly after the turn with their calls",
        '"Please ensure that function response turn comes immediately after a '
        'function call turn", https://github.com/langchain-ai/langchain/issues/27799',
    ),
    Rule(
        "call-after-user",
        "functionCalls stand directly after a user's content or after responses",
        '"Please ensure that function call turn comes immediately after a user turn '
        'or after a function response turn.", '
        "https://github.com/google-gemini/gemini-cli/issues/11814",
    ),
    Rule(
        "names",
        "responses name the functions of their calls, by id, else in their order",
        f"{_REFERENCE} (FunctionResponse.name matches FunctionCall.name), {_CALLING}",
    ),
    Rule(
        "ids",
        "the response to a call that has an id has the same id",
        f"{_REFERENCE} (FunctionResponse.id: matches the function call id)",
    ),
    Rule(
        "signatures",
        "in the current turn the first functionCall of each step has the signature "
        "that it came with",
        '"Function call is missing a thought_signature in functionCall parts.", '
        f"{_SIGNATURES}",
    ),
)


def check(contents: Any, *, ids: Ids = "strict", signatures: bool = False) -> list[str]:
    """Return the rules that these contents break; empty if they are accepted.

    ``signatures`` says that the model wants its thought signatures back (Gemini 3).
    """
    judgement = Judgement(RULES)
    check_bytes(judgement, contents)
    if isinstance(contents, str):
        return judgement.breaches
    for index, content in enumerate(contents):
        _check_content(judgement, f"contents[{index}]", content)
    before: dict[str, Any] | None = None
    turns = merged(contents)
    for index, turn in enumerate(turns):
        _check_turn(judgement, f"turn {index}", before, turn, ids)
        before = turn
    if before is not None and calls_of(before):
        judgement.broken("counts", "the end", "no responses")
    if signatures:
        _check_signatures(judgement, turns)
    return judgement.breaches


def merged(contents: Any) -> list[dict[str, Any]]:
    """Return the turns: contents of the model in a row are one.

    The SDK's own chats send the contents of a stream's chunks back one by one
    (google-genai, ``chats.py``, ``send_message_stream``).
    """
    turns: list[dict[str, Any]] = []
    for content in contents:
        if turns and turns[-1].get("role") == content.get("role") == "model":
            parts = [*_parts(turns[-1]), *_parts(content)]
            turns[-1] = {"role": "model", "parts": parts}
        else:
            turns.append(content)
    return turns


def field(part: Any, name: str) -> Any:
    """Return a field by its JSON name, or by the proto name that is accepted too."""
    proto = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
    return part.get(name, part.get(proto))


def _parts(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in content.get("parts") or [] if isinstance(part, dict)]


def calls_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the calls of a content of the model; others have none that count."""
    return _calls_in(content) if content.get("role") == "model" else []


def _calls_in(content: dict[str, Any]) -> list[dict[str, Any]]:
    found = (field(part, "functionCall") for part in _parts(content))
    return [call for call in found if call is not None]


def _responses_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    found = (field(part, "functionResponse") for part in _parts(content))
    return [response for response in found if response is not None]


def _check_content(judgement: Judgement, where: str, content: dict[str, Any]) -> None:
    role = content.get("role", "user")
    judgement.check(role in ("user", "model", "function"), "role", where, repr(role))
    judgement.check(_parts(content), "parts", where)
    for number, part in enumerate(_parts(content)):
        here = f"{where}.parts[{number}]"
        kinds = [name for name in sorted(_DATA) if field(part, name) is not None]
        judgement.check(len(kinds) == 1, "data", here, str(kinds))
    for call in _calls_in(content):
        judgement.check(role == "model", "place", where)
        args = call.get("args", {})
        good = isinstance(call.get("name"), str) and isinstance(args, dict)
        judgement.check(good, "call-shape", where, repr(call))
    for response in _responses_of(content):
        judgement.check(role != "model", "place", where)
        good = isinstance(response.get("name"), str)
        good = good and isinstance(response.get("response"), dict)
        judgement.check(good, "response-shape", where, repr(response))


def _check_turn(
    judgement: Judgement,
    where: str,
    before: dict[str, Any] | None,
    content: dict[str, Any],
    ids: Ids,
) -> None:
    called = [] if before is None else calls_of(before)
    answers = _responses_of(content)
    if answers and not called:
        judgement.broken("response-after-call", where)
    elif len(answers) != len(called):
        judgement.broken("counts", where, f"{len(answers)} for {len(called)}")
    else:
        _check_match(judgement, where, called, answers, ids)
    if calls_of(content):
        after_user = before is not None and before.get("role", "user") != "model"
        judgement.check(after_user, "call-after-user", where)


def _check_match(
    judgement: Judgement,
    where: str,
    called: list[dict[str, Any]],
    answers: list[dict[str, Any]],
    ids: Ids,
) -> None:
    by_id = {answer.get("id"): answer for answer in answers}
    wanted = [call.get("id") or None for call in called]
    if len(by_id) == len(called) and set(by_id) == set(wanted):
        # An id says what is answered; without ids only the order does.
        answers = [by_id[id_] for id_ in wanted]
    for call, answer in zip(called, answers, strict=True):
        same = call.get("name") == answer.get("name")
        judgement.check(same, "names", where, f"{answer.get('name')!r}")
        told = (call.get("id") or None) in (None, answer.get("id"))
        judgement.check(told or ids == "lenient", "ids", where, f"{answer.get('id')!r}")


def _check_signatures(judgement: Judgement, turns: list[Any]) -> None:
    """Look at the current turn: what follows the last thing that the user said."""
    start = 0
    for index, turn in enumerate(turns):
        said = turn.get("role", "user") == "user" and not _responses_of(turn)
        start = index if said else start
    for index in range(start, len(turns)):
        parts = [p for p in _parts(turns[index]) if field(p, "functionCall")]
        if parts:
            signed = field(parts[0], "thoughtSignature")
            judgement.check(signed, "signatures", f"turn {index}")
