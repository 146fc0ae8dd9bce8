"""Logs that somebody made to harm whoever reads them.

Lines of real logs are changed: bytes flipped, cut and moved; and, with checksums and
chain made good again, members replaced by what no log has: other types, huge numbers,
deep nesting, tags of values with wrong bodies, names of modules and classes, texts
that are code, terminal sequences or HTML.
"""

from __future__ import annotations

import json
import zlib

#: What a member is replaced by; each has been too much for some reader of JSON.
EVIL = [
    None, True, -1, 0, 10**18, 10**30, 1.5e308, "", "x" * 3000, [], {}, [[]],
    [None] * 50, "\u202eevil\u0000", "\x1b[2J\x1b]0;owned\x07", "\ud800",
    "<script>alert(1)</script>", "../../etc/passwd", "os:system", "builtins:eval",
    "__import__('os').system('id')",
    "$redacted", {"$deep": []}, {"$deep": [[{"$ref": 0}]]}, {"$ref": 7}, {"$ref": -1},
    {"$redacted": True}, {"$dict": [[1]]}, {"$dict": 7}, {"$tuple": 5}, {"$set": [[]]},
    {"$int": "9" * 5000}, {"$int": "abc"}, {"$float": "1e9"}, {"$bytes": "!"},
    {"$str": "\\u"}, {"$decimal": "x"}, {"$uuid": "x"}, {"$date": "0000"},
    {"$error": []}, {"$error": [{"type": "os:system", "args": ["id"]}]},
    {"$error": [{"type": "builtins:SystemExit", "args": [1], "cause": 0}]},
    {"$object": {"type": "subprocess:Popen", "state": {"args": "id"}}},
    {"$class": "os:system"}, {"$function": "os:system"}, {"$path": "\u0000"},
    {"$constant": "quit"}, {"$enum": {"type": "signal:Signals", "name": "SIGKILL"}},
    {"value": {"$object": {"type": "builtins:object"}}},
    {"stream": {"end": "complete"}}, {"chunks": [[]]}, {"edit": {"base": 0}},
    {"edit": {"base": 10**9, "lists": {}}}, {"edit": []}, {"args": []},
]  # fmt: skip


def deep(depth):
    """Nesting beyond what a recursive reader survives."""
    return json.loads("[" * min(depth, 900) + "]" * min(depth, 900))


def seal(body):
    """A line with a good checksum."""
    return body + b',"crc":"%08x"}' % zlib.crc32(body)


def chained(lines):
    """The lines with checksums and chain made good, whatever is in them."""
    made, prev = [], None
    for old in lines:
        body = old[:-18]
        if prev is not None and b'"prev":"' in body:
            at = body.index(b'"prev":"') + 8
            body = body[:at] + prev + body[at + 8 :]
        line = seal(body)
        if b'"seq":' in line[:8]:
            prev = line[-10:-2]
        made.append(line)
    return made


def damaged(rng, line):
    """A line with some of its bytes changed; no checksum is made good."""
    data = bytearray(line)
    for _ in range(rng.choice([1, 1, 2, 8])):
        if not data:
            break
        at = rng.randrange(len(data))
        match rng.randrange(6):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.choice(b'\x00\n"{}[],:\\\xff0')
            case 2:
                del data[at : at + rng.randrange(1, 40)]
            case 3:
                data[at:at] = data[rng.randrange(len(data)) :][: rng.randrange(1, 60)]
            case 4:
                data[at:at] = rng.randbytes(rng.randrange(1, 20))
            case _:
                data[at:at] = b"9" * rng.randrange(1, 40)
    return bytes(data)


def twisted(rng, line):
    """A line whose JSON says something else; its place in the log stays."""
    members = json.loads(line)
    place = rng.choice(["meta", "head", "deep", *["data"] * 9])
    if place == "head":
        name = rng.choice(["type", "call", "key", "durable", "time", "seq", "blob"])
        members[name] = rng.choice(EVIL)
    elif place == "deep":
        members["data"] = deep(rng.choice([40, 300, 900]))
    else:
        members[place] = _replaced(rng, members.get(place), 0)
    order = ["seq", "prev", "durable", "time", "type", "log", "call", "key", "meta"]
    data, _ = members.pop("data", None), members.pop("crc", None)
    head = {k: members.pop(k) for k in order if k in members} | members
    text = json.dumps({**head, "data": data}, separators=(",", ":"))
    return seal(text.encode("utf-8", "surrogatepass")[:-1])


def _replaced(rng, node, depth):
    """JSON with one part of it replaced, at any depth."""
    inside = isinstance(node, (dict, list)) and node and depth < 8
    if not inside or rng.random() < 0.2:
        return rng.choice(EVIL)
    if isinstance(node, dict):
        name = rng.choice(list(node))
        if rng.random() < 0.1:
            return {k: v for k, v in node.items() if k != name}
        if rng.random() < 0.1:
            return {**node, rng.choice(["$deep", "$error", "stream", "args"]): 1}
        return {**node, name: _replaced(rng, node[name], depth + 1)}
    at = rng.randrange(len(node))
    return [*node[:at], _replaced(rng, node[at], depth + 1), *node[at + 1 :]]


def mutated(rng, segments):
    """Segments with some of their lines changed; and how many were."""
    split = [data.split(b"\n")[:-1] for data in segments]
    count = 0
    good = rng.random() < 0.8
    for _ in range(rng.choice([1, 1, 2, 4, 10])):
        lines = rng.choice(split)
        at = rng.randrange(len(lines))
        count += 1
        if good and lines[at].startswith(b'{"seq"') and rng.random() < 0.9:
            try:
                lines[at] = twisted(rng, lines[at])
            except ValueError:
                lines[at] = damaged(rng, lines[at])
        elif rng.random() < 0.7:
            lines[at] = damaged(rng, lines[at])
        elif rng.random() < 0.5:
            lines.insert(at, rng.choice(lines))
        elif len(lines) > 1:
            del lines[at]
    if good:
        made = iter(chained([line for lines in split for line in lines]))
        split = [[next(made) for _ in lines] for lines in split]
    end = b"\n" if rng.random() < 0.9 else b""
    return [b"\n".join(lines) + end for lines in split], count
