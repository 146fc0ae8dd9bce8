"""The layout shows the architecture: imports go one way, effects stay at the rim."""

from __future__ import annotations

import ast
import fnmatch
from pathlib import Path

import pytest

import durable_agent

PACKAGE = Path(durable_agent.__file__).parent

#: Layer by layer, lowest first. A new module has to be given its place here.
LAYERS = [
    # Facts: errors, events, outcomes.
    """errors _error_base events outcomes store _version _paths _mark _redaction
    _shapes""",
    # Values and JSON; events to history; the disk.
    "values _value_* recovery _records _fs _ids _texts",
    # Call identity; frame, scan, torn or corrupt; lock and epoch.
    "_identity _segment _lease _edits _edits_*",
    # Group commit.
    "_barrier _barrier_* _sync_pool",
    # Stores.
    "jsonl _jsonl_* _blobs _shelf _recover _memory postgres _postgres_*",
    # Dialects.
    "transcript transcript.*",
    # Decisions: history and identity in, what to do out.
    "replay _lanes policy _conversations",
    # Sessions, the flow of a call, and the drivers.
    """session sessions _calls _streams _core _current _opening _closing _sealing
    _forking _recording _recorded _unrecorded _replayed _flow _driving _requests
    _claims _turns _tape _stepping _stream_objects _stream_helpers _ending _spec _stubs
    _binding _context _lifecycle _managers _carriers _raw_responses _returned
    _arguments _responses _results _transcripts
    _chains _usage _progress _preview _row_texts _rows _tables
    _frameworks""",
    # The typed front.
    "decorators _decorate _options _wrapping _kinds _step_runs",
    # Around it.
    """cli cli.* report _report_* testing _testing_* integrations integrations.*
    __main__""",
]
#: The front door imports what it exports.
FRONT = "__init__"

#: A plain call may turn out to give a stream, and a stream ends as a call does: these
#: know each other, by module and not by name, so that either may be imported first.
DRIVERS = {
    ("_streams", "_calls"),
    ("_replayed", "_calls"),
    ("_managers", "_calls"),
    ("_managers", "_returned"),
    ("_streams", "_returned"),
    ("_returned", "_calls"),
}

#: Calls that open, write, sync or change files, by the name that is called.
TOUCHES_FILES = {
    *("fsync", "fdatasync", "sync", "pwrite", "writev", "pwritev", "sendfile"),
    *("ftruncate", "truncate", "makedirs", "removedirs", "symlink", "link"),
    *("write_text", "write_bytes", "touch", "copyfile", "rmtree", "mkstemp", "mkdtemp"),
    *("fchmod", "chmod", "flock", "lockf", "posix_fallocate"),
}
#: The same, but words that other objects use too: only as functions of ``os``.
OF_OS = {"open", "write", "rename", "replace", "unlink", "remove", "mkdir", "rmdir"}


def _modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if len(parts) > 1 and parts[-1] == "__init__":
            parts = parts[:-1]
        yield ".".join(parts), ast.parse(path.read_text(encoding="utf-8"))


MODULES = dict(_modules())


def layers_of(module):
    return [
        number
        for number, names in enumerate(LAYERS)
        if any(fnmatch.fnmatchcase(module, name) for name in names.split())
    ]


def _for_types_only(tree):
    """Nodes that only a type checker sees."""
    return {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }


def _imported(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom) or node.level:
        return []
    module = node.module or ""
    inner = [f"{module}.{alias.name}" for alias in node.names]
    return [name if _ours(name) in MODULES else module for name in inner]


def _ours(name):
    return name.removeprefix("durable_agent.") if name != "durable_agent" else FRONT


def imports(tree, *, nested):
    """The modules of this package that a module imports when it runs."""
    skipped = _for_types_only(tree)
    nodes = ast.walk(tree) if nested else _at_import(tree)
    names = [n for node in nodes if id(node) not in skipped for n in _imported(node)]
    return {_ours(name) for name in names if name.split(".")[0] == "durable_agent"}


def _at_import(tree):
    """The nodes that run when a module is imported: none inside a function."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        yield node
        pending.extend(ast.iter_child_nodes(node))


@pytest.mark.parametrize("module", [m for m in MODULES if m != FRONT])
def test_every_module_has_one_place(module):
    """A module without a place could import anything."""
    assert len(layers_of(module)) == 1, f"give {module} one place in LAYERS"


@pytest.mark.parametrize("module", [m for m in MODULES if m != FRONT])
def test_a_module_imports_only_from_its_layer_and_lower_ones(module):
    (own,) = layers_of(module)
    upward = [
        name
        for name in imports(MODULES[module], nested=True)
        if name == FRONT or layers_of(name)[0] > own
    ]

    # Tests and tools of the ninth layer stand outside: they use the front door.
    allowed = [FRONT] if own == len(LAYERS) - 1 else []
    assert [name for name in upward if name not in allowed] == []


def test_modules_do_not_import_each_other_in_a_circle():
    """Within a layer too: whoever comes first would find a half-made module."""
    wanted = {
        module: {n for n in imports(tree, nested=False) if (module, n) not in DRIVERS}
        for module, tree in MODULES.items()
    }
    done = set()
    while ready := {
        m for m, needs in wanted.items() if m not in done and needs <= done
    }:
        done |= ready

    assert sorted(set(wanted) - done) == []


def _calls(tree):
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(id=name):
                yield "", name, node.lineno
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                yield owner, name, node.lineno
            case ast.Attribute(attr=name):
                yield "…", name, node.lineno


def file_calls(tree):
    """Where a module opens, writes, syncs or changes a file itself."""
    aliases = {"os", "posix"}
    return [
        f"line {line}: {owner}.{name}".replace(" .", " ")
        for owner, name, line in _calls(tree)
        if (owner in aliases and name in OF_OS)
        or (owner == "" and name == "open")
        or (owner in {*aliases, "shutil", "tempfile"} and name in TOUCHES_FILES)
        or (name in {"write_text", "write_bytes", "touch"} and owner != "disk")
    ]


@pytest.mark.parametrize("module", [m for m in MODULES if m != "_fs"])
def test_only_one_module_opens_writes_and_syncs_files(module):
    """Power loss is simulated, and modes and flags are decided, in one place."""
    assert file_calls(MODULES[module]) == []


def test_the_module_of_the_disk_is_seen_to_touch_it():
    """Else the test above would be blind."""
    found = " ".join(file_calls(MODULES["_fs"]))

    assert {w for w in ("os.open", "os.unlink", "os.mkdir") if w in found} == {
        "os.open",
        "os.unlink",
        "os.mkdir",
    }


def body_calls(tree):
    return [line for _, name, line in _calls(tree) if name == "fn"]


def test_recorded_bodies_run_in_the_drivers_only():
    """A second place that runs a body would need a second proof of intent first.

    ``_wrapping`` makes a coroutine or generator to check its arguments, and closes it
    unstarted; ``_driving`` asks verifiers and handlers; ``_binding`` and ``_sync_pool``
    run what is not recorded.
    """
    running = {module for module, tree in MODULES.items() if body_calls(tree)}

    assert running <= {
        *("_calls", "_streams", "_step_runs", "_wrapping"),
        *("_driving", "_sync_pool", "_binding"),
    }
    assert "_calls" in running
