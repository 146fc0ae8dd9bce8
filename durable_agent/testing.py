"""For tests: crash an agent at every boundary, fake a model, test a store.

`crash_points` kills a script at every boundary of its log, runs it again, and reports
effects that happened twice, answered model requests that were sent again, calls in
doubt and other outputs. With pytest it is a fixture of that name; ``pytest
--durable-crash`` then tries every boundary::

    def test_my_agent(crash_points):
        crash_points("my_agent.py").check()

`FakeLLM` is a scripted model that behaves the same after a restart.

The tests of a store are a subclass; each test makes a store of its own::

    class TestMyStore(StoreContract):
        def make_store(self) -> Store:
            return MyStore(...)
"""

from durable_agent._memory import MemoryLog, MemoryReader, MemoryStore
from durable_agent._testing_contract import StoreContract
from durable_agent._testing_crash import crash_points
from durable_agent._testing_dialects import ToolCall
from durable_agent._testing_disk import SimulatedDisk
from durable_agent._testing_files import Operation, PowerCut
from durable_agent._testing_llm import FakeLLM, FakeLLMError
from durable_agent._testing_report import CrashCase, CrashReport
from durable_agent._testing_runs import CrashRun
from durable_agent._testing_world import effect, happened

__all__ = [
    "CrashCase",
    "CrashReport",
    "CrashRun",
    "FakeLLM",
    "FakeLLMError",
    "MemoryLog",
    "MemoryReader",
    "MemoryStore",
    "Operation",
    "PowerCut",
    "SimulatedDisk",
    "StoreContract",
    "ToolCall",
    "crash_points",
    "effect",
    "happened",
]
