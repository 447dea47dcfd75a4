"""Work per span does not grow with the number of executors, their tasks and their ranks."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from bench.scale.grow import Size, grow
from dlobd.bundle.store import Bundle
from dlobd.experiment.files import from_dict
from dlobd.recompute.computed import computed

DLOBD = Path(__file__).parents[2] / "dlobd"
COUNTED = tuple(f"{DLOBD / room}/" for room in ("bundle", "evidence", "timeline", "measures", "trust"))


def executed_lines(bundle: Bundle) -> int:
    """Return the number of lines that the record of a run executes in the counted rooms, iterations included."""
    run = bundle.read()
    experiment = from_dict(asdict(run.configuration), "the bundle")
    count = 0

    def line(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def called(frame: FrameType, event: str, argument: object) -> Any:
        return line if frame.f_code.co_filename.startswith(COUNTED) else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        computed(bundle, experiment)
    finally:
        sys.settrace(before)
    return count


def test_the_work_of_a_record_grows_linearly_with_the_number_of_executors(tmp_path: Path) -> None:
    few, more, most = (
        executed_lines(grow(Size(executors, 6, 2), tmp_path / f"20260101T000000Z-{executors:04}"))
        for executors in (16, 32, 64)
    )
    # constant work cancels out; of quadratic work, the second difference is four times the first
    assert most - more < 2.1 * (more - few)
