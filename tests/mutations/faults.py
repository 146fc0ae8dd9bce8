"""Faults that a store of events must not have, as changes to the product's text.

Each is a promise broken in one place. The tests have to notice; which of them do is
what ``python -m tests.mutations`` prints.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class Fault:
    """One fault: the text it replaces, in which module, once."""

    name: str
    module: str
    old: str
    new: str


FAULTS = [
    Fault(
        "no sync of the directory of a new segment",
        "_jsonl_write.py",
        "            self._disk.sync_dir(index.directory)\n            where",
        "            where",
    ),
    Fault(
        "no sync of the directories above a new session",
        "_jsonl_write.py",
        "            self._create_segment(0)\n            self._sync_above()\n",
        "            self._create_segment(0)\n",
    ),
    Fault(
        "the intent is synced after the effect",
        "_flow.py",
        "yield Barrier(seq) if self.barrier else Eager(seq)",
        "yield Eager(seq)",
    ),
    Fault(
        "acknowledged before the sync",
        "_barrier.py",
        "        outer = sys.exception()\n        try:\n            self._sync()",
        "        outer = sys.exception()\n        progress.durable = reached\n"
        "        self._queue.pass_on(ticket)\n        try:\n            self._sync()",
    ),
    Fault(
        "a failed sync is tried again",
        "_jsonl_write.py",
        "        self._disk.sync(self._fd)\n        self._synced",
        "        try:\n            self._disk.sync(self._fd)\n"
        "        except OSError:\n            self._disk.sync(self._fd)\n"
        "        self._synced",
    ),
    Fault(
        "a failed sync does not poison",
        "_barrier.py",
        "            if progress.failed is None:\n"
        "                progress.failed = error\n        except BaseException as i",
        "            progress.fail(error)\n            progress.failed = None\n"
        "            raise\n        except BaseException as i",
    ),
    Fault(
        "the page cache is trusted on opening",
        "_recover.py",
        "        written = rewrite_tail(index, sync=True)\n",
        "",
    ),
    Fault(
        "a torn tail is not cut",
        "_recover.py",
        "        disk.truncate(source, offset)\n",
        "",
    ),
    Fault(
        "a torn tail is not kept",
        "_recover.py",
        "        kept = _keep(index, source, segment, size)\n",
        '        kept = ""\n',
    ),
    Fault(
        "promised data is cut off like a torn tail",
        "_jsonl_scan.py",
        "    if index.attested >= index.next_seq:\n",
        "    if index.attested >= index.next_seq + 10**9:\n",
    ),
    Fault(
        "damage in a sealed segment is skipped",
        "_jsonl_scan.py",
        "    if not last:\n        index.corrupt(",
        "    if not last:\n        return\n        index.corrupt(",
    ),
    Fault(
        "the checksum is not looked at",
        "_segment.py",
        '    return line[-10:-2] == b"%08x" % crc32(content)',
        "    return bool(content)",
    ),
    Fault(
        "the checksum of the line before is not looked at",
        "_segment.py",
        '    start = b\'{"seq":%d,"prev":"%b","durable":\' % (seq, prev)\n',
        '    start = b\'{"seq":%d,"prev":"%b","durable":\' % (seq, line[:60]'
        '.partition(b\'"prev":"\')[2][:8])\n',
    ),
    Fault(
        "the watermark of a line is too high",
        "_jsonl_log.py",
        "                known = durable\n",
        "                known = seq - 1\n",
    ),
    Fault(
        "the watermark covers what was written during the sync",
        "_barrier.py",
        "            progress.durable = reached\n",
        "            progress.durable = progress.written\n",
    ),
    Fault(
        "a lock is given back by a forked child",
        "_lease.py",
        "        if self._released or os.getpid() != self._pid:\n",
        "        if self._released:\n",
    ),
    Fault(
        "a replaced lock file is not noticed",
        "_lease.py",
        "        if status is None or identity(status) != self._identity:\n",
        "        if status is None:\n",
    ),
    Fault(
        "a short write is taken for a whole one",
        "_fs.py",
        "        taken = disk.write(fd, view)\n        if taken <= 0:\n",
        "        disk.write(fd, view)\n        taken = len(view)\n"
        "        if taken <= 0:\n",
    ),
    Fault(
        "a segment is left behind with bytes that were not synced",
        "_jsonl_write.py",
        "        if self._synced != segment.end:\n            self._sync_file()\n"
        "        self._create_segment(",
        "        self._create_segment(",
    ),
    Fault(
        "a payload kept aside is not durable before its line",
        "_blobs.py",
        "            disk.sync(fd, metadata=True)\n",
        "",
    ),
    Fault(
        "the seal is written before what it attests is synced",
        "_jsonl_write.py",
        "            if self._synced != self._index.segments[-1].end:\n"
        "                self._sync_file()\n        self._put(batch[start:])",
        "        self._put(batch[start:])",
    ),
    Fault(
        "a line of another log is taken for one of this",
        "_jsonl_scan.py",
        "        if found.log != index.log:\n",
        "        if found.log is None and index.log is not None:\n",
    ),
    Fault(
        "a fork that was cut off is taken for whole",
        "recovery.py",
        "    return bool(uids) and bool(uids[-1][0] > events)\n",
        "    return bool(uids) and bool(uids[-1][0] > events + 10**9)\n",
    ),
    Fault(
        "a call in doubt is run again by itself",
        "replay.py",
        '    again = slot.kind == "llm" or effect in _AGAIN\n',
        "    again = True\n",
    ),
    Fault(
        "a failed checkpoint is forgotten",
        "_core.py",
        "            self.latch = error\n",
        "            pass\n",
    ),
]
