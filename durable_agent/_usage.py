"""What the recorded model requests cost, in tokens, and what replay saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import field, frozen

from durable_agent.transcript import Tokens, usage_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from durable_agent._transcripts import Transcript
    from durable_agent.recovery import History


@frozen
class Usage:
    """Tokens by model, as the providers counted them in the recorded responses.

    ``requests`` counts the responses that stated a usage, ``saved`` the tokens of
    those that this run got from the log in place of the provider, ``saved_requests``
    all requests that it got so. A model that a response does not name is "".
    """

    models: Mapping[str, Tokens] = field(factory=dict)
    saved: Mapping[str, Tokens] = field(factory=dict)
    requests: int = 0
    saved_requests: int = 0

    @property
    def total(self) -> Tokens:
        """The tokens of all models."""
        return sum(self.models.values(), Tokens())

    @property
    def total_saved(self) -> Tokens:
        """The tokens of all models that replay saved."""
        return sum(self.saved.values(), Tokens())


def usage(
    history: History, transcript: Transcript, replayed: Collection[int] = ()
) -> Usage:
    """Add up what the recorded responses state; reads each of them once.

    ``replayed``: the seqs of the outcomes that this run got from the log.
    """
    models: dict[str, Tokens] = {}
    saved: dict[str, Tokens] = {}
    requests = 0
    #: Calls whose response counts what the requests inside them cost.
    counted: set[str] = set()
    for slot in history.slots:
        if slot.kind != "llm" or slot.outcome is None:
            continue
        if slot.parent in counted:
            counted.add(slot.call)
            continue
        said = transcript.said(slot)
        found = None if said is None else usage_of(said.response)
        if found is None:
            continue
        counted.add(slot.call)
        model, tokens = found
        requests += 1
        models[model] = models.get(model, Tokens()) + tokens
        if slot.outcome.seq in replayed:
            saved[model] = saved.get(model, Tokens()) + tokens
    return Usage(models, saved, requests, len(replayed))
