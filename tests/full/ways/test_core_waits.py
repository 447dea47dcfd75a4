"""A CPU hog beside a real run: the wall's threads wait for a core, and the run says that the machine was busy."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlobd.attribution.attribute import attribute
from dlobd.evidence.evidence import Evidence
from dlobd.measures.core_waits import Carrier, Carriers
from dlobd.timeline.assemble import assemble

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

HOGS = 4
HOG = "while True: pass"
STARTS = ("SparkSubmit JVM starts", "SparkContext")


@contextmanager
def hogged(out: Path) -> Iterator[None]:
    """Processes that are none of the run's have the cores for ten seconds from its submission on."""
    over = threading.Event()

    def hog() -> None:
        before = set(out.glob("*/*/evidence/resources.jsonl"))
        while not over.wait(0.1) and set(out.glob("*/*/evidence/resources.jsonl")) == before:
            pass
        hogs = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(HOGS)]
        over.wait(10)
        for one in hogs:
            one.kill()
            one.wait()

    thread = threading.Thread(target=hog)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def starting(path: Path) -> tuple[int, int]:
    """Of the JVMs' starts: how long their threads had a core, and how long they waited for one."""
    evidence = Evidence(path)
    known = Carriers(evidence)
    on_core_ns = waiting_ns = 0
    for segment in attribute(assemble(evidence)).segments:
        carrier = known.carrier(segment)
        if segment.span is None or segment.span.name not in STARTS or not isinstance(carrier, Carrier):
            continue
        share = carrier.overlaps_ns(segment.start_ns, segment.end_ns) / np.diff(carrier.times_ns)
        on_core_ns += int((carrier.on_core_ns * share).sum())
        waiting_ns += int((carrier.waiting_ns * share).sum())
    return on_core_ns, waiting_ns


def test_a_hog_of_four_processes_is_waiting_for_a_core_and_no_longer_silently_sparks(dlobd, quick_run) -> None:
    """What Spark's JVM wants of the cores stays; how long it waits for them is several times that."""
    with hogged(dlobd.out):
        ended = dlobd.run()
    assert ended.code == 0, ended.err
    run: dict[str, Any] = json.loads((ended.bundle.path / "run.json").read_text())
    assert run["core_waits"]["busy"]
    assert any(warning.startswith("the machine was busy: ") for warning in run["warnings"])
    assert run["core_waits"]["foreign_cpu_ns"] > run["core_waits"]["held_up_ns"] > 0
    (had, waited), (had_before, waited_before) = (starting(one.bundle.path) for one in (ended, quick_run))
    # where others were busy during the run without hogs too, that one waited as well
    before = json.loads((quick_run.bundle.path / "run.json").read_text())
    factor = 1 if before["core_waits"]["busy"] else 1.5
    assert waited / had > factor * waited_before / had_before
    for each in (run, json.loads((quick_run.bundle.path / "run.json").read_text())):
        whole = each["core_waits"]["whole"]
        parts = ("on_core_ns", "waiting_ns", "blocked_ns", "unknown_ns")
        assert sum(whole[name] for name in parts) == whole["ns"] == each["wall_ns"]
