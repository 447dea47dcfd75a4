"""The record of a run that lacks it: after a kill, without memory, without disk. Limits are real, in processes of their
own."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dlobd.bundle.store import Bundle
from dlobd.process_id import identify
from dlobd.recompute.limits import limited_memory
from dlobd.recompute.verification import verify
from dlobd.record.run import Run
from dlobd.run import runner
from dlobd.run.run_record import RunInProgress
from dlobd.tracing import clock
from tests.captured import DATA, copy_of

RUN_ID = "20260102T030405Z-0a1b"
DEADLINE_S = 120
MEMORY_BYTES = 3 << 30
"""Address space that Python with numpy needs, and that the record of a captured run does not exceed."""


@pytest.fixture
def killed(tmp_path: Path) -> Bundle:
    """A bundle as dlobd leaves it if it is killed after the collection."""
    path = Path(shutil.copytree(DATA / "quick-run", tmp_path / "runs" / "softmax-mnist-quick" / RUN_ID))
    (path / "hashes").unlink()
    with subprocess.Popen(["sleep", "60"]) as child:
        own = identify(child.pid)
        child.kill()
    assert own
    members = ("configuration", "experiment", "experiment_key", "schema_version", "started_at", "command", "setup")
    members += ("platform", "versions", "git", "seeds")
    stored = json.loads((path / "run.json").read_text())
    process = {"pid": own.pid, "start_ticks": own.start_ticks, "domain": clock.domain()}
    record = {name: stored[name] for name in members} | {"run_id": RUN_ID, "status": "running", "reason": None}
    Bundle(path).write(Run.from_json(record | {"metrics": {}, "process": process}))
    return Bundle(path)


def dlobd(*words: str, limit: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dlobd", *words]
    return subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, timeout=DEADLINE_S)


def _limited(kind: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (most, most))


def _large(bundle: Bundle) -> Path:
    """Add a span file of more bytes than the memory limit; it takes no disk."""
    path = bundle.spans / "driver" / "spans-1-1.jsonl"
    path.touch()
    os.truncate(path, MEMORY_BYTES)
    return path


def test_the_record_of_an_ended_job_is_computed_later(killed: Bundle) -> None:
    shown = dlobd("show", str(killed.path), "--json")
    found = json.loads(shown.stdout)
    assert found["status"] == "interrupted"
    assert found["reason"].endswith(
        f"ended after the job, before its record was stored. Next: dlobd import {killed.path}"
    )
    imported = dlobd("import", str(killed.path))
    assert (imported.returncode, imported.stderr) == (0, "")
    assert imported.stdout.splitlines()[-1] == f"bundle: {killed.path}"
    stored = json.loads((DATA / "quick-run" / "run.json").read_text())
    record = killed.read_json()
    own = ("run_id", "process", "configuration")  # later settings have their default
    assert {name for name in stored if name not in own and record[name] != stored[name]} == set()
    assert record["process"] is None
    assert verify(killed).failed == []


def test_a_running_or_changed_run_is_not_imported(killed: Bundle) -> None:
    own = identify(os.getpid())
    assert own
    record = json.loads((killed.path / "run.json").read_text())
    record["process"] |= {"pid": own.pid, "start_ticks": own.start_ticks}
    killed.write(record)
    done = dlobd("import", str(killed.path))
    assert (done.returncode, done.stderr) == (
        2,
        f"dlobd: Run {RUN_ID} is running, or waits for its collection. Next: wait, or dlobd collect\n",
    )
    changed = Bundle(copy_of("quick-run", killed.path.parents[2] / "other"))
    changed.seal()
    (changed.spans / "driver" / "spans-1-1.jsonl").touch()
    before = (changed.path / "run.json").read_bytes()
    done = dlobd("import", str(changed.path))
    assert done.returncode == 7
    assert "differs from its hashes: spans/" in done.stderr
    assert (changed.path / "run.json").read_bytes() == before


@pytest.mark.parametrize("verb", ["import", "verify", "trace", "report"])
def test_too_little_memory_is_reported_before_the_work(killed: Bundle, verb: str) -> None:
    """With figures. `report` writes a page without a timeline. The evidence is untouched, and a later import works."""
    sparse = _large(killed)
    done = dlobd(verb, str(killed.path), limit=_limited(resource.RLIMIT_AS, MEMORY_BYTES))
    said = done.stderr if verb != "report" else (killed.path / "report.html").read_text()
    assert done.returncode == (0 if verb == "report" else 3)
    assert f"{killed.spans} has spans of 32" in said
    assert "MB of memory, and " in said
    assert "MB are available." in said
    assert verb == "report" or len(done.stderr.splitlines()) == 1
    assert killed.read_json()["status"] == "interrupted"
    sparse.unlink()
    assert dlobd("import", str(killed.path)).returncode == 0
    assert verify(killed).failed == []


def test_a_full_disk_costs_the_record_only(killed: Bundle, tmp_path: Path) -> None:
    """A file larger than the limit stands for a full disk. The record can be written to another directory."""
    done = dlobd("import", str(killed.path), limit=_limited(resource.RLIMIT_FSIZE, 4096))
    assert done.returncode == 7
    assert done.stderr.startswith(
        f"dlobd: {killed.path}/run.json cannot be written: File too large. Next: dlobd import "
    )
    assert len(done.stderr.splitlines()) == 1
    assert sorted(path.name for path in killed.path.iterdir()) == ["evidence", "logs", "run.json", "spans"]
    assert killed.read_json()["status"] == "interrupted"
    elsewhere = tmp_path / "other" / "place"
    done = dlobd("import", str(killed.path), "--to", str(elsewhere))
    assert done.returncode == 0
    assert [path.name for path in elsewhere.iterdir()] == ["run.json"]
    assert Bundle(elsewhere).read().status == "ok"
    assert killed.read_json()["status"] == "interrupted"
    for verb, name in (("trace", "trace.json"), ("export", "spans.csv"), ("report", "report.html")):
        words = ("--format", "spans") if verb == "export" else ()
        done = dlobd(verb, str(killed.path), *words, limit=_limited(resource.RLIMIT_FSIZE, 4096))
        assert (done.returncode, done.stderr.splitlines()[-1]) == (
            2,
            f"dlobd: {killed.path}/{name} cannot be written: File too large. Next: choose another -o FILE",
        )
        assert not (killed.path / name).exists()


def test_a_run_without_memory_for_its_record_keeps_its_evidence(killed: Bundle) -> None:
    sparse, record = _large(killed), RunInProgress(killed.read())
    with limited_memory(MEMORY_BYTES):
        runner.compute(record.run.configuration, killed, record, lambda line: None)
    record.write(killed)
    killed.seal()
    found = killed.read_json()
    assert found["status"] == "invalid"
    assert found["reason"].startswith(f"the record was not computed: {killed.spans} has spans of 32")
    assert found["reason"].endswith(f" Next: dlobd import {RUN_ID}")
    assert killed.verify() == []
    sparse.unlink()
    killed.seal()
    assert dlobd("import", str(killed.path)).returncode == 0
