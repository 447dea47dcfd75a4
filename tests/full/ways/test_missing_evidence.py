"""Evidence that does not come, or goes while the job runs: the run says what is missing, and claims nothing of it."""

from __future__ import annotations

import json
import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from dlobd.bundle.store import Bundle
from dlobd.layers import UNATTRIBUTED
from tests.cluster.conftest import until, warnings_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(480)]


def lacking(bundle: Bundle, *words: str) -> dict[str, Any]:
    """The record of a run that is invalid for want of evidence, and names it in a warning with all `words`."""
    run: dict[str, Any] = json.loads((bundle.path / "run.json").read_text())
    assert run["status"] == "invalid", run["reason"]
    assert next(check["code"] for check in run["checks"] if check["verdict"] == "fail") == "evidence-complete"
    said = [line for line in run["warnings"] if line.startswith("missing: ")]
    assert any(all(word in line for word in words) for line in said), said
    assert sum(layer["ns"] for layer in run["layers"]) + run["unattributed_ns"] == run["wall_ns"]
    assert any(row["inside"] == UNATTRIBUTED for row in run["not_measured"])
    return run


def test_a_whole_run_lacks_nothing(quick_run) -> None:
    run = json.loads((quick_run.bundle.path / "run.json").read_text())
    assert warnings_of(run) == []
    inventory = json.loads((quick_run.bundle.evidence / "collected.json").read_text())["files"]
    assert {*inventory, "run.json", "evidence/collected.json"} == set(quick_run.bundle.files())


def test_logs_that_are_truncated_and_removed_while_the_job_runs(dlobd) -> None:
    """The ResourceManager's log loses its begin, as by a rotation; a container's files are cleaned away."""
    started = dlobd.start_run("epochs=8")
    started.trains()
    log = dlobd.work_dir / "log" / "resourcemanager" / "resourcemanager.log"
    os.truncate(log, 0)
    folder = next(path.parent for path in started.span_files())
    for name in ("stderr", "spark.log"):
        (folder / name).unlink()
    ended = started.ended(240)
    run = lacking(ended.bundle, f"logs/containers/{folder.name}/stderr", "is absent")
    said = "\n".join(run["warnings"])
    assert "resourcemanager log: it was truncated or replaced while the job ran" in said
    assert "logs/daemons/resourcemanager.log begins after the application was accepted" in said


def test_a_sampler_that_is_killed(dlobd) -> None:
    started = dlobd.start_run("launcher=native", "epochs=3")
    ranks_of(started)
    sampler = until(lambda: next(filter(_samples, psutil.Process(started.process.pid).children()), None), 20, "samples")
    sampler.kill()
    ended = started.ended(240)
    assert ended.code == 0, ended.err
    run = json.loads((ended.bundle.path / "run.json").read_text())
    assert run["status"] == "ok", run["reason"]
    assert any("the sampler ended before the job did" in line for line in run["warnings"])
    assert [check for check in run["checks"] if check["verdict"] != "pass"] == []


def _samples(process: psutil.Process) -> bool:
    return "dlobd.run.resource_sampler" in process.cmdline()


def ranks_of(started: Any) -> dict[str, psutil.Process]:
    """`rank-0`, `rank-1` to its process, of plain processes."""

    def found() -> dict[str, psutil.Process] | None:
        ranks = {}
        for process in psutil.Process(started.process.pid).children(recursive=True):
            try:
                ranks[Path(process.environ().get("LOG_DIRS", "")).name] = process
            except psutil.Error:
                continue
        ranks.pop("", None)
        return ranks if len(ranks) == 2 else None

    return until(found, 120, "both ranks are started")  # type: ignore[no-any-return]


def test_a_directory_that_takes_no_spans(dlobd) -> None:
    started = dlobd.start_run("launcher=native")

    def block() -> None:
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline:
            for spans in dlobd.out.glob("*/*/spans"):
                (spans / "rank-1").touch()
                return
            time.sleep(0.01)

    threading.Thread(target=block, daemon=True).start()
    ended = started.ended(240)
    run = lacking(ended.bundle, "the span file of rank 1 (worker 0)", "is absent")
    assert any("its disk refused them" in line for line in run["warnings"])
    verdicts = {check["code"]: check["verdict"] for check in run["checks"]}
    assert {verdicts[code] for code in ("steps", "samples", "loss-falls", "test-accuracy")} == {"pass"}  # it did train


def test_a_disk_that_fills_up(dlobd) -> None:
    """A limit of the size of files stands for it: what the rank records beyond is refused, and counted."""
    started = dlobd.start_run("launcher=native", "epochs=3")
    ranks_of(started)["rank-1"].rlimit(resource.RLIMIT_FSIZE, (6_000, 6_000))
    ended = started.ended(240)
    run = lacking(ended.bundle, "lines of the spans of process", "its disk refused them")
    assert run["overhead"]["lost_lines"] > 0


def test_a_span_file_that_is_cut_while_it_is_written(dlobd) -> None:
    started = dlobd.start_run("launcher=native", "epochs=3")
    rank = ranks_of(started)["rank-0"]

    def begun() -> Path | None:
        for path in dlobd.out.glob("*/*/spans/rank-0/*.jsonl"):
            if "first step done" in path.read_text():
                return path
        return None

    path = until(begun, 120, "it trains")
    text = path.read_text()
    os.truncate(path, text.index("\n", len(text) // 2) + 1)
    assert rank.is_running()
    ended = started.ended(240)
    lacking(ended.bundle, f"the span file rank-0/{path.name}", "lines, but its recorder wrote")
