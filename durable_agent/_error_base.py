"""How errors carry facts: fields, composed messages, pickling. See ``errors.py``."""

from __future__ import annotations

from typing import Any, ClassVar, Self


class DurableError(Exception):
    """The root: catch it to catch everything this package raises on purpose."""

    #: The names of the fields, in the order of the constructor's arguments.
    _fields: ClassVar[tuple[str, ...]] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by fields: constructors are keyword-only."""
        state = dict(self.__dict__)
        return _rebuild, (
            type(self),
            {n: getattr(self, n) for n in self._fields},
            state,
        )


def _rebuild(
    cls: type[DurableError], fields: dict[str, Any], state: dict[str, Any]
) -> DurableError:
    error = cls(**fields)
    error.__dict__.update(state)
    return error


class WordedError(DurableError):
    """An error whose message is composed from a sentence and the facts."""

    _fields: ClassVar[tuple[str, ...]] = ("message", "session", "advice")

    def __init__(
        self, message: str = "", *, session: str | None = None, advice: str = ""
    ) -> None:
        #: What happened, one sentence.
        self.message = message
        #: The id of the session concerned, where there is one.
        self.session = session
        #: What the person can do next.
        self.advice = advice
        super().__init__(message)

    def __str__(self) -> str:
        where = f"session {self.session!r}: " if self.session is not None else ""
        advice = f" {self.advice}" if self.advice else ""
        return f"{where}{self.message}{advice}"


class LocatedError(WordedError):
    """An error at a place in a file."""

    _fields: ClassVar[tuple[str, ...]] = (
        "message",
        "session",
        "advice",
        "file",
        "offset",
        "seq",
    )

    def __init__(
        self,
        message: str = "",
        *,
        session: str | None = None,
        advice: str = "",
        file: str | None = None,
        offset: int | None = None,
        seq: int | None = None,
    ) -> None:
        super().__init__(message, session=session, advice=advice)
        #: The file, the byte offset in it, and the event concerned.
        self.file = file
        self.offset = offset
        self.seq = seq

    def __str__(self) -> str:
        parts = [
            f"{name} {value}"
            for name, value in (
                ("file", self.file),
                ("offset", self.offset),
                ("seq", self.seq),
            )
            if value is not None
        ]
        place = f" ({', '.join(parts)})" if parts else ""
        where = f"session {self.session!r}: " if self.session is not None else ""
        advice = f" {self.advice}" if self.advice else ""
        return f"{where}{self.message}{place}{advice}"


class PathError(WordedError):
    """An error about one place inside a value."""

    _fields: ClassVar[tuple[str, ...]] = (
        "message",
        "session",
        "advice",
        "path",
        "type_name",
    )

    def __init__(
        self,
        message: str = "",
        *,
        session: str | None = None,
        advice: str = "",
        path: str = "",
        type_name: str = "",
    ) -> None:
        super().__init__(message, session=session, advice=advice)
        #: Where in the value, as ``.attribute``, ``[index]`` and ``[key]``.
        self.path = path
        #: The qualified name of the type concerned.
        self.type_name = type_name


class CallError(DurableError):
    """An error about one recorded call; ``str()`` is the model-visible text."""

    _fields: ClassVar[tuple[str, ...]] = ("text", "call", "session")

    def __init__(
        self, text: str = "", *, call: Any = None, session: str | None = None
    ) -> None:
        super().__init__(text)
        #: What the model is told.
        self.text = text
        #: The recorded call, a ``Call``.
        self.call = call
        self.session = session

    def __str__(self) -> str:
        return self.text

    def advise(self, note: str) -> Self:
        """Add advice for the person, which the model does not see."""
        self.add_note(note)
        return self
