"""Waits for a core of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dlobd.evidence import resources
from dlobd.measures import core_waits
from dlobd.run.resource_sampler import Assignment, sampling
from dlobd.tracing import process_use
from tests.recorded import read_all
from tests.samples import evidence, segment, segments_of

MS = 1_000_000


def test_a_process_that_is_gone_has_nothing() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert process_use.Threads(child.pid).read() is None
    assert process_use.read_bytes(child.pid) is process_use.faults(child.pid) is process_use.cpu_ns(child.pid) is None


WORK = """
import os, sys, time
from dlobd import spans as kinds, tracing
os.sched_setaffinity(0, {int(sys.argv[2])})
tracing.start(sys.argv[1], "driver")
print(flush=True)
sys.stdin.readline()
with tracing.span(kinds.USER_CODE):
    until = time.thread_time() + 0.3
    while time.thread_time() < until:
        pass
print(flush=True)
sys.stdin.readline()
"""


HOG = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True: pass"


def measured(directory: Path, hogs: int) -> dict[str, Any]:
    """A recorded process that wants one core, beside so many that want the same one and are none of the run's."""
    core, file = str(min(os.sched_getaffinity(0))), directory / "resources.jsonl"
    others: list[subprocess.Popen[bytes]] = []
    # a shell stands for dlobd: what is below it is the run's
    work = ["sh", "-c", '"$@"; exit', "sh", sys.executable, "-c", WORK, str(directory / "spans"), core]
    with subprocess.Popen(work, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        try:
            hog = [sys.executable, "-c", HOG, core]
            others += [subprocess.Popen(hog, stdout=subprocess.PIPE) for _ in range(hogs)]
            for other in others:
                other.stdout.readline()
            with sampling(file, Assignment({"dlobd": child.pid}, "m", 60.0, period_ns=50 * MS)):
                child.stdin.write(b"\n")
                child.stdin.flush()
                child.stdout.readline()
        finally:
            for other in others:
                other.kill()
                other.communicate()
        child.communicate(b"\n")
    sampled = resources.read(file.read_text().splitlines())
    recorded = read_all(directory / "spans")
    (span,) = recorded[0].spans
    pieces = segments_of([segment(span.start_ns, span.end_ns, recorded[0].process, "user")])
    found = core_waits.core_waits(
        evidence(resources=sampled, processes=recorded, all_processes=recorded), pieces, (span.start_ns, span.end_ns)
    )
    assert found is not None
    return found


@pytest.mark.serial
@pytest.mark.slow
def test_a_hog_is_seen_as_waiting_for_a_core_and_the_machine_is_called_busy(tmp_path: Path) -> None:
    """Four hogs leave it a fifth of its core. Its own time there is what it wanted, with them or without."""
    for name in ("quiet", "hogged"):
        (tmp_path / name / "spans").mkdir(parents=True)
    quiet, hogged = measured(tmp_path / "quiet", 0), measured(tmp_path / "hogged", 4)
    for found in (quiet, hogged):
        whole = found.whole
        assert whole.unknown_ns <= 0.1 * whole.ns
        assert whole.on_core_hi_ns >= 290 * MS
        assert whole.on_core_ns == pytest.approx(300 * MS, rel=0.15)
        (row,) = [row for row in found.processes if row.role == "driver"]
        assert row.source == "own marks, samples"
    shares = [found.whole.waiting_ns / found.whole.ns for found in (quiet, hogged)]
    assert shares[1] > 0.6
    assert shares[1] > shares[0] or quiet.busy, "other processes of this machine may hold it up as well"
    assert hogged.busy
    assert hogged.held_up_ns > 0.5 * hogged.whole.waiting_ns
    assert hogged.foreign_cpu_ns > 0.5 * hogged.whole.ns
    (line,) = core_waits.warnings(hogged, hogged.whole.ns)
    assert line.startswith("the machine was busy: ")
