"""Markers of several processes."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path

import pytest

from dlobd.job.description import Markers
from tests.jobs import job


@pytest.fixture
def markers(tmp_path: Path) -> Markers:
    """Markers of a job that was prepared."""
    (tmp_path / "run" / "done").mkdir(parents=True)
    return Markers(job(tmp_path))


def _report(markers: Markers, cause: str) -> None:
    markers.report_failure(cause)


def test_of_many_failures_at_once_exactly_one_counts(markers: Markers) -> None:
    """Several processes fail in the same moment: the marker is one whole cause, not a mixture."""
    context = multiprocessing.get_context("spawn")
    causes = [f"rank {n}: {str(n) * 200}" for n in range(4)]
    processes = [context.Process(target=_report, args=(pickle.loads(pickle.dumps(markers)), c)) for c in causes]
    for process in processes:
        process.start()
    for process in processes:
        process.join(50)
    assert [process.exitcode for process in processes] == [0] * 4
    assert markers.read()[1] in causes
