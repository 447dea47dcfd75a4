"""Work grows linearly with the number of executors, their tasks and their ranks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from bench.scale.grow import Size, grow
from dlobd.attribution.attribute import attribute
from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.search import missing
from dlobd.experiment.files import from_dict
from dlobd.measures.epochs import phases
from dlobd.measures.resource_use import resource_use
from dlobd.timeline import hdfs_use
from dlobd.timeline.assemble import assemble
from dlobd.trust.base import Facts
from dlobd.trust.checks import checks

DLOBD = Path(__file__).parents[2] / "dlobd"
COUNTED = tuple(f"{DLOBD / room}/" for room in ("bundle", "evidence", "timeline", "measures", "trust"))


class Lines:
    """Number of executed lines of the counted rooms, with each iteration of a loop."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the lines of a block."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(COUNTED) else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        self.count += event == "line"
        return self._line


def executed_lines(bundle: Bundle) -> int:
    """Return the number of lines that reading, assembling, checking and measuring a run execute."""
    lines, evidence = Lines(), Evidence(bundle.path)
    experiment = from_dict(asdict(bundle.read().configuration), "the bundle")
    with lines.counted():
        trace = assemble(evidence)
    found = attribute(trace)
    with lines.counted():
        absences = missing(evidence)
        facts = Facts(evidence, experiment, found.clips, found.wall_ns, None, absences)
        assert all(check.verdict == "pass" for check in checks(facts))
        hdfs_use.summary(evidence, trace.spans, trace.intervals)
        phases(evidence)
        resource_use(evidence, found.segments, (trace.start_ns, trace.end_ns))
    return lines.count


def test_the_work_grows_linearly_with_the_number_of_executors(tmp_path: Path) -> None:
    few, more, most = (
        executed_lines(grow(Size(executors, 4, 2), tmp_path / f"20260101T000000Z-{executors:04}"))
        for executors in (12, 24, 48)
    )
    # constant work cancels out; the second difference of quadratic work is four times the first
    assert most - more < 2.05 * (more - few)


def test_the_work_grows_linearly_with_the_number_of_tasks(tmp_path: Path) -> None:
    few, more, most = (
        executed_lines(grow(Size(3, tasks, 2), tmp_path / f"20260101T000000Z-{tasks:04}")) for tasks in (12, 24, 48)
    )
    assert most - more < 2.01 * (more - few)
