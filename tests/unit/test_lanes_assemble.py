"""A run may have died anywhere, and its bundle may lack anything: what is there is shown, and it still adds up."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlobd.attribution.attribute import attribute
from dlobd.errors import BundleError
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.log4j import LogLine
from dlobd.schema import Trace
from dlobd.timeline.assemble import assemble
from dlobd.timeline.ranks import last_executor

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "quick-run", tmp_path / "run"))


def adds_up(trace: Trace) -> None:
    """The parts sum to the wall, none is negative, and spans are well formed."""
    found = attribute(trace)
    assert sum(layer.ns for layer in found.layers) + found.unattributed_ns == trace.wall_ns
    assert all(layer.ns >= 0 for layer in found.layers)
    assert all(span.end_ns >= span.start_ns for span in trace.spans)
    assert len({span.id for span in trace.spans}) == len(trace.spans)


NEEDED = ("evidence/window.json", "evidence/job.json")


@pytest.mark.parametrize("name", NEEDED)
def test_without_window_or_job_there_is_no_trace(bundle: Path, name: str) -> None:
    path = bundle / name
    for data in (path.read_bytes()[:-7], b"", b"[]"):
        path.write_bytes(data)
        with pytest.raises(BundleError, match=f"{name} is damaged"):
            assemble(Evidence(bundle))
    path.unlink()
    with pytest.raises(BundleError, match=" has no "):
        assemble(Evidence(bundle))


def test_with_the_window_alone_everything_waits_for_spark_submit(bundle: Path) -> None:
    for part in ("spans", "logs"):
        shutil.rmtree(bundle / part)
    (bundle / "evidence" / "driver-jvm.log").unlink()
    trace = assemble(Evidence(bundle))
    found = attribute(trace)
    assert {span.lane for span in trace.spans} == {"client"}
    assert found.unattributed_ns > 0.99 * trace.wall_ns
    adds_up(trace)


def test_a_killed_executor_is_closed_at_its_last_evidence(bundle: Path) -> None:
    container = next((bundle / "logs" / "containers").glob("*_000003"))
    stderr = container / "stderr"
    text = stderr.read_text()
    stderr.write_text(text[: text.index("Finished task")])
    jvm = container / "jvm.log"
    jvm.write_text("".join(line for line in jvm.read_text().splitlines(keepends=True) if "exit" not in line))
    spans = assemble(Evidence(bundle)).spans
    cut = [span for span in spans if span.truncated]
    assert {span.lane for span in cut} == {"executor-2"}
    assert all(span.name.startswith("task of") for span in cut)
    ends = [span.end_ns for span in spans if span.lane == "executor-2"]
    assert max(span.end_ns for span in cut) == max(ends)
    adds_up(assemble(Evidence(bundle)))


def test_an_executor_that_registers_too_late_released_nobody(bundle: Path) -> None:
    """On a slow machine Spark goes on without it, after its own patience: the wait for executors was not released, and
    nothing of that contradicts anything."""
    log = bundle / "logs" / "driver.stderr"
    lines = log.read_text().splitlines(keepends=True)
    (ready,) = [line for line in lines if "SchedulerBackend is ready" in line]
    last = [line for line in lines if ": Registered executor" in line][-1]
    early_ns = int(last.split()[0]) - 100_000_000
    log.write_text("".join(lines).replace(ready, f"{early_ns} {ready.partition(' ')[2]}"))
    trace = assemble(Evidence(bundle))
    (wait,) = [span for span in trace.spans if span.name == "wait for executors"]
    assert (wait.end_ns, wait.released_ns) == (early_ns, None)
    assert trace.clips == ()
    adds_up(trace)


def test_only_as_many_executors_are_waited_for_as_were_requested_at_first() -> None:
    """Also in a script that trains nothing, whose ranks do not tell: the third one came in place of a lost one."""
    line = LogLine(0, "INFO", "yarn.YarnAllocator", "Submitted 2 unlocalized container requests.", "AM")
    registered = {name: LogLine(at_ns, "INFO", "", "", "") for name, at_ns in (("1", 20), ("2", 10), ("3", 30))}
    found: Any = SimpleNamespace(
        executors=registered,
        driver=SimpleNamespace(log=SimpleNamespace(registered=registered)),
        application_master=SimpleNamespace(requested=line),
    )
    assert last_executor(found, ()) == "1"
    found.application_master.requested = None
    assert last_executor(found, ()) == "3"


def test_an_executor_that_replaces_a_lost_one_is_not_the_way_to_the_first_step(bundle: Path) -> None:
    before = assemble(Evidence(bundle))
    log = bundle / "logs" / "driver.stderr"
    lines = log.read_text().splitlines(keepends=True)
    last = next(line for line in reversed(lines) if ": Registered executor" in line)
    late_ns = int(lines[-1].split()[0])
    log.write_text("".join([*lines, f"{late_ns} {last.partition(' ')[2]}".replace("with ID 2", "with ID 3")]))
    assert "with ID 3" in log.read_text()
    trace = assemble(Evidence(bundle))
    assert [event.event for event in trace.startup] == [event.event for event in before.startup]
    (wait,) = [span for span in trace.spans if span.name == "wait for executors"]
    # the ApplicationMaster's log does not name its container: what the wait was for is not certain any more
    assert replace(wait, unknown=False) in before.spans
