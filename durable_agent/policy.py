"""Which boundaries are barriers. A policy decides when; a store makes it so."""

from __future__ import annotations

from typing import Self

from attrs import frozen


@frozen(kw_only=True)
class CheckpointPolicy:
    """The boundaries at which everything before must be durable.

    The default is the promise of this package. Turning a boundary off leaves its
    events eager: they survive a killed process, and power loss may take the newest.
    """

    #: Before a model request is sent.
    before_model: bool = True
    #: Before the body of a top-level tool call runs.
    before_tool: bool = True
    #: Before the body of a tool declared ``read_only`` runs.
    before_read_only: bool = True
    #: Before a step begins.
    at_step: bool = True
    #: Before the caller gets an outcome (each decorator may ask for it on its own).
    durable_outcomes: bool = False

    @classmethod
    def none(cls) -> Self:
        """No barrier anywhere: events are stored, and a crash may lose the newest."""
        return cls(
            before_model=False,
            before_tool=False,
            before_read_only=False,
            at_step=False,
        )

    def is_barrier(self, kind: str, effect: str) -> bool:
        """Whether the body of such a call waits for its intent to be durable."""
        if kind == "llm":
            return self.before_model
        if effect == "read_only":
            return self.before_tool and self.before_read_only
        return self.before_tool

    @property
    def intents_durable(self) -> bool:
        """Whether the absence of an intent proves that no tool body ran."""
        return self.before_tool and self.before_read_only
