"""What the dialects share, and what each of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    #: (messages of an assistant turn, one of its calls) -> what answers the call.
    Answer: TypeAlias = Callable[[Sequence[Any], "ToolCall"], "Result"]


@frozen
class ToolCall:
    """A tool call of an assistant turn.

    ``token`` tells it apart within its turn, also where ids are repeated or missing.
    ``arguments`` is None where they could not be parsed; ``raw`` is what was given.
    """

    id: str | None
    name: str
    arguments: Mapping[str, Any] | None
    raw: Any = field(default=None, repr=False)
    token: str = ""


@frozen
class Result:
    """What stands as the result of a tool call.

    ``value`` is the recorded value, if ``has_value``: a dialect puts it as it is where
    it already is a result in that dialect's form (a tool message, say). Everywhere else
    ``text`` is put. ``failed``: the text is an error's or a code's.
    """

    text: str
    failed: bool = False
    value: Any = field(default=None, repr=False)
    has_value: bool = False


@frozen
class Tokens:
    """Tokens of model requests, as the provider counted them.

    ``input`` includes ``cached`` (read from the provider's cache); ``output`` includes
    ``reasoning``. What a provider does not say is 0.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        """Return the sum, member by member."""
        return Tokens(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
        )


@frozen
class Assembled:
    """A response put together from the chunks of a stream.

    ``complete``: the provider said that it was finished.
    """

    response: Any
    complete: bool


class Dialect(Protocol):
    """One provider's message format; each module of this package is one.

    All functions are pure, never raise on what they do not know, and change nothing
    that they are given. Messages and responses may be plain dicts (as JSON has them)
    or the objects of the provider's SDK, which is never imported: objects are known by
    their fields, or by classes found in ``sys.modules``.
    """

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of each module
        """What ``Session.messages(dialect=...)`` calls it."""

    def request(self, bound: Mapping[str, Any]) -> list[Any] | None:
        """Return the messages among a request's arguments, by this provider's names.

        None where there are none. A text in their place is one user message.
        """

    def knows(self, messages: Sequence[Any]) -> bool:
        """Whether some message has a form that only this dialect has."""

    def turn(self, response: Any) -> list[Any] | None:
        """Return the assistant turn of a response, as messages for the next request.

        None where the response is not in this dialect's form.
        """

    def text_turn(self, text: str) -> list[Any]:
        """Return an assistant turn that says a text."""

    def assemble(self, chunks: Sequence[Any]) -> Assembled | None:
        """Return the response that the chunks of a stream amount to.

        None where they are not this dialect's.
        """

    def is_final_chunk(self, chunk: Any) -> bool:
        """Whether a chunk of a stream says that the answer is complete."""

    def calls(self, turn: Sequence[Any]) -> list[ToolCall]:
        """Return the tool calls of an assistant turn, in order."""

    def balance(self, messages: Sequence[Any], answer: Answer) -> list[Any]:
        """Return messages in which every tool call has exactly one result.

        A turn whose calls are answered as the provider wants is left as it is, the
        very same objects. Else its results stand where they belong, in call order:
        those that there are, the first of each call, and ``answer`` for the others. A
        result that answers no call is left out, for providers refuse it.
        """

    def comparable(self, message: Any) -> Any:
        """Return a message as plain JSON without what may move between requests."""

    def usage(self, response: Any) -> tuple[str, Tokens] | None:
        """Return the model's name ("" if unsaid) and tokens that a response states."""
