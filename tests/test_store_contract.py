"""Every store keeps the same contract."""

from __future__ import annotations

import pytest

from durable_agent.jsonl import JsonlStore
from durable_agent.testing import MemoryStore, StoreContract


class TestMemoryStore(StoreContract):
    def make_store(self):
        return MemoryStore()


class _OnDisk(StoreContract):
    options = {}

    @pytest.fixture(autouse=True)
    def _root(self, tmp_path):
        self.root = tmp_path / "root"

    def make_store(self):
        return JsonlStore(self.root, **self.options)


class TestJsonlStore(_OnDisk):
    pass


class TestJsonlStoreWithTinySegments(_OnDisk):
    """Every few events a new file, and most payloads aside."""

    options = {"roll_bytes": 300, "blob_bytes": 2}
