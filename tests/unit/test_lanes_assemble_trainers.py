"""Whether a trainer ran inside of a Spark task, or beside it: what Spark's log and the processes' own marks say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlobd import spans as kinds
from dlobd.evidence.recorder import RecordedProcess, RecordedSpan
from dlobd.schema import Process
from dlobd.timeline.assemble import _Waits
from dlobd.timeline.ranks import Rank

WORKER, TRAINER = 11, 12


def recorded(pid: int, parent: int, *spans: tuple[str, int, int]) -> RecordedProcess:
    process = RecordedProcess(Process("host", "worker", 0, pid), "domain", 0, True, Path(), parent=parent)
    process.spans = [
        RecordedSpan(number, 0, "launcher", name, start_ns, end_ns, False, {}, {}, "main")
        for number, (name, start_ns, end_ns) in enumerate(spans)
    ]
    return process


@pytest.mark.parametrize(("begins_ns", "parent", "inside"), [(90, WORKER, False), (120, WORKER, False), (120, 1, True)])
def test_a_trainer_that_its_task_left_behind_is_in_no_task(begins_ns: int, parent: int, inside: bool) -> None:
    """TensorFlowOnSpark's start task, until 95, starts a process that trains until 180. The feed's task begins at 100:
    perhaps before the trainer's main function, and it ends after it. Nothing else tells such a trainer from one that is
    the feed task's own Python worker, whose parent ran no start task."""
    task = SimpleNamespace(executor="1", id=7, start_ns=100)
    worker = recorded(WORKER, 1, (kinds.START_TASK, 50, 95))
    trainer = recorded(TRAINER, parent, (kinds.TRAINER, begins_ns, 180))
    evidence: Any = SimpleNamespace(
        executor_containers={"1": "container"},
        executors={"1": SimpleNamespace(finished={7: 200})},
        driver=SimpleNamespace(log=SimpleNamespace(jobs=[SimpleNamespace(tasks=[task])])),
        recorded_in=lambda container: [worker, trainer],
    )
    rank = Rank(trainer, "1", "worker", 0, 85, 190, whole=True)
    assert _Waits(evidence, [rank]).in_task(rank) == ((85, 180) if inside else None)
