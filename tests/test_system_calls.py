"""Every call to the operating system fails once, in each way, in each small program.

Each time: the error is clear, no body ran whose intent was not durable, opening again
finds what was promised, and the program run again comes to its end with nothing done
twice that a person did not allow.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import random
import warnings
from collections import Counter

import pytest

from durable_agent import (
    Completed,
    NotApplied,
    ToolOutcomeUnknownError,
    open_session,
)
from durable_agent.errors import DurableError, DurableWarning
from durable_agent.testing import SimulatedDisk
from tests.watched import BASE, Outside, WatchedStore
from tests.workloads import WORKLOADS, Agent

ERRORS = [errno.EIO, errno.ENOSPC, errno.EINTR, errno.EMFILE, errno.EACCES]
#: What else may go wrong with an operation: a part is done; a promise is forgotten.
SPECIAL = {"write": "short", "write_at": "short", "sync": "lost"}
#: Operations that are no system call of their own or cannot fail.
SILENT = {"pause", "realpath", "whoami", "is_alive", "read_note", "write_note"}
#: What may be done again after a crash without asking anybody.
REPEATABLE = ("put ", "ask ", "stream ", "inner ")


@pytest.fixture(autouse=True)
def _quiet():
    """What is logged and warned of here is not the point."""
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DurableWarning)
        yield
    logging.disable(logging.NOTSET)


def new_disk():
    disk = SimulatedDisk()
    disk.mkdir(BASE)
    disk.sync_dir("/")
    disk.operations.clear()
    return disk


@functools.cache
def unharmed(name):
    """What a program returns and does, and the operations it asks for."""
    disk, outside = new_disk(), Outside()
    value = WORKLOADS[name](WatchedStore(disk, outside), Agent(outside))
    return value, labels(outside), [operation.name for operation in disk.operations]


def labels(outside):
    return Counter(label for label, _, _ in outside.effects)


def failing(nth, fault):
    """A plan: the n-th operation has the fault."""

    def plan(operation):
        if operation.number != nth:
            return None
        if isinstance(fault, int):
            raise OSError(fault, os.strerror(fault), operation.path)
        return fault

    return plan


def leaves(error):
    """The errors in an error, which may be a group of a task group."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves(each)]
    return [error]


def attempt(name, disk, outside):
    """Run a program; return its value, or the errors that ended it."""
    try:
        return WORKLOADS[name](WatchedStore(disk, outside), Agent(outside)), []
    except (DurableError, ExceptionGroup) as error:
        return None, leaves(error)


def settled_by_a_person(disk, outside, error, allowed):
    """Look at the outside and say what became of the call."""
    call = error.call
    began = [label for label, id_, _ in outside.effects if id_ == call.id]
    session = open_session(error.session, store=WatchedStore(disk, outside))
    try:
        if not began or began[0].startswith(("fail", "outer")):
            allowed.update(began)
            session.resolve(call.id, NotApplied())
        else:
            what, _, text = began[0].partition(" ")
            value = f"done {text}" if what == "act" else text
            session.resolve(call.id, Completed(value))
    finally:
        session.close()


def finish(name, disk, outside):
    """Run a program until it is done, as often as it takes; check what it did."""
    expected, effects, _ = unharmed(name)
    allowed = Counter()
    for _ in range(12):
        value, errors = attempt(name, disk, outside)
        if not errors:
            break
        for error in errors:
            assert isinstance(error, ToolOutcomeUnknownError), error
        settled_by_a_person(disk, outside, errors[0], allowed)
    else:
        pytest.fail("it does not come to an end")

    assert value == expected
    assert outside.wrong == []
    done = labels(outside)
    assert set(done) == set(effects)
    for label, count in done.items():
        if not label.startswith(REPEATABLE):
            assert count <= effects[label] + allowed[label], label


def fails_once(name, nth, fault, *, power):
    disk, outside = new_disk(), Outside()
    disk.plan = failing(nth, fault)
    expected, _, _ = unharmed(name)
    value, errors = attempt(name, disk, outside)

    assert outside.wrong == []
    if not errors:
        assert value == expected
    for error in errors:
        assert isinstance(error, DurableError), error
        assert "session '" in str(error) or BASE in str(error), error
    after = disk.power_cut(random.Random(nth)) if power else disk.kill()
    finish(name, after, outside)


def cases(name):
    """Each operation of a program with each of its faults."""
    _, _, operations = unharmed(name)
    for nth, operation in enumerate(operations, 1):
        if operation not in SILENT:
            special = [SPECIAL[operation]] if operation in SPECIAL else []
            yield from ((nth, fault) for fault in ERRORS + special)


def test_the_programs_are_many_and_use_every_operation():
    """A fault in what nobody calls would prove nothing."""
    used = {operation for name in WORKLOADS for operation in unharmed(name)[2]}

    assert len(WORKLOADS) >= 20
    assert used >= {
        "open_read", "open_append", "open_rewrite", "create", "close", "mkdir", "read",
        "write", "write_at", "sync", "sync_dir", "rename", "unlink", "rmdir", "listdir",
        "lstat", "fstat", "lock",
    }  # fmt: skip


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_failed_system_call_breaks_no_promise(name):
    """Each operation with one of its faults, and then a kill or a power cut."""
    for number, (nth, fault) in enumerate(cases(name)):
        if number % 5 == nth % 5 or not isinstance(fault, int):
            fails_once(name, nth, fault, power=number % 2 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_failed_system_call_breaks_no_promise(name):
    for nth, fault in cases(name):
        for power in (False, True):
            fails_once(name, nth, fault, power=power)
