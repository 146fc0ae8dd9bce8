"""Forking a session: the same log up to an event, under a new id."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import orjson

from durable_agent import events as ev
from durable_agent._identity import new_uid
from durable_agent.errors import SessionExistsError
from durable_agent.events import Draft
from durable_agent.recovery import is_cut_off

if TYPE_CHECKING:
    from durable_agent._core import Core
    from durable_agent.events import Event

#: Events copied before the next write, so that a long log is not held in memory.
_BATCH = 512


def fork(core: Core, new_id: str, at: int) -> str:
    """Copy the events up to and with ``at``; durable on return.

    Calls recorded up to there keep their idempotency keys; later ones derive theirs
    from the new session's uid. A fork that was cut off is made anew.
    """
    if not 0 <= at < core.log.next_seq:
        msg = f"session {core.id!r} has no event {at}: seq is {core.log.next_seq - 1}"
        raise LookupError(msg)
    log = core.store.open(new_id)
    first = next(iter(log.heads()), None)
    if first is not None and is_cut_off(first.meta.get("uids", ()), log.next_seq):
        log.close()
        core.store.delete(new_id)
        log = core.store.open(new_id)
    try:
        if log.report.existed:
            raise SessionExistsError(
                "a fork needs a new id, and this one is taken", session=new_id
            )
        batch: list[Draft] = []
        last = -1
        for event in core.log.read(0):
            if event.seq > at:
                break
            batch.append(_copied(core, event, new_id, at))
            if len(batch) >= _BATCH:
                last = log.append(batch)
                log.write(last)
                batch = []
        if batch:
            last = log.append(batch)
        log.flush(last)
    finally:
        log.close()
    return new_id


def _copied(core: Core, event: Event, new_id: str, at: int) -> Draft:
    if event.type != ev.SESSION_START:
        return Draft(event.type, event.raw, event.call, event.key, event.meta)
    data = event.data
    data["id"] = new_id
    data["created"] = time.time_ns()
    data["parent"] = {"session": core.id, "at": at}
    uids = [[seq, uid] for seq, uid in core.history.uids if seq <= at]
    meta = {"uids": [*uids, [at + 1, new_uid()]]}
    return Draft(event.type, orjson.dumps(data), meta=meta)
