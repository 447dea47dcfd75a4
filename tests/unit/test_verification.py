"""A bundle that was changed is found out: any change by its hashes, and one that was sealed again by what the evidence
tells twice."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlobd import cli
from dlobd.attribution import record
from dlobd.attribution.audits import audit
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.verification import verify
from dlobd.bundle.store import Bundle
from dlobd.experiment import own_job
from dlobd.experiment.files import key

DATA = Path(__file__).parents[1] / "data"
EXECUTORS = "spans/container_*_000002", "spans/container_*_000003"
RM = "logs/daemons/resourcemanager.log"
TRACE = "logs/daemons/datanode-0-clienttrace.log"


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """A copy of a captured run whose report was made by this version."""
    found = Bundle(Path(shutil.copytree(DATA / "quick-run", tmp_path / "20260102T030405Z-0a1b")))
    run = found.read_json()
    experiment = own_job.from_dict(run["configuration"])
    run["experiment_key"] = key(experiment)
    metrics = {name: run["metrics"][name] for name in ("staged_bytes", "daemons_bytes", "executor_peak_bytes")}
    (found.evidence / "collected.json").write_text(json.dumps({"missing": [], "metrics": metrics}))
    run["metrics"] = {}
    run |= record.computed(found, experiment).to_json()
    found.write(run)
    found.seal()
    return found


def wrong(bundle: Bundle) -> list[str]:
    """What does not hold."""
    answers = [answer.question for answer in verify(bundle) if not answer.ok]
    return answers + [one.audit for one in audit(Evidence(bundle.path)) if one.verdict == "fail"]


def test_a_bundle_as_it_was_left_holds(bundle: Bundle) -> None:
    """Nothing differs, and no audit fails; what an audit has no source for is unknown, and says which."""
    assert wrong(bundle) == []
    for one in audit(Evidence(bundle.path)):
        assert one.verdict == "pass" or one.detail, one


def text(name: str, pattern: str, instead: str, count: int = 1) -> Callable[[Path], None]:
    """Replaces what `pattern` finds in a file; `name` may be a glob, of which the first file that has it is changed."""

    def change(path: Path) -> None:
        for file in sorted(path.glob(name)):
            old = file.read_text()
            new = re.sub(pattern, instead, old, count=count, flags=re.MULTILINE)
            if new != old:
                file.write_text(new)
                return
        raise AssertionError(f"{pattern} is not in {name}")

    return change


def report(*keys: Any, value: Any) -> Callable[[Path], None]:
    """Sets one value of run.json."""

    def change(path: Path) -> None:
        run = json.loads((path / "run.json").read_text())
        inner = run
        for name in keys[:-1]:
            inner = inner[name]
        assert inner[keys[-1]] != value
        inner[keys[-1]] = value
        (path / "run.json").write_text(json.dumps(run, indent=1) + "\n")

    return change


def moved(path: Path) -> None:
    """One nanosecond goes from a layer to another: the sums stay."""
    run = json.loads((path / "run.json").read_text())
    for name in ("ns", "measured_ns"):
        run["layers"][1][name] -= 1
        run["layers"][2][name] += 1
    (path / "run.json").write_text(json.dumps(run, indent=1) + "\n")


def better_known(path: Path) -> None:
    """One nanosecond between marks is said to be measured: the sums stay."""
    run = json.loads((path / "run.json").read_text())
    run["layers"][1]["measured_ns"] += 1
    run["layers"][1]["between_marks_ns"] -= 1
    (path / "run.json").write_text(json.dumps(run, indent=1) + "\n")


def gone(name: str) -> Callable[[Path], None]:
    """Removes the first file of that name."""
    return lambda path: sorted(path.glob(name))[0].unlink()


def cut(name: str) -> Callable[[Path], None]:
    """Removes the second half of the largest file of that name."""

    def change(path: Path) -> None:
        file = max(path.glob(name), key=lambda file: file.stat().st_size)
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    return change


def extra(path: Path) -> None:
    """A file that was never sealed."""
    (path / "evidence" / "note.txt").write_text("x")


MUTATIONS: dict[str, Callable[[Path], None]] = {
    "the first step began earlier": text("spans/*/*.jsonl", r'("n":"first step".*"t":\d*?)\d(\d{7})\}', r"\g<1>0\2}"),
    "a span has another layer": text("spans/*/*.jsonl", '"l":"hdfs"', '"l":"spark"'),
    "a span has another name": text("spans/*/*.jsonl", '"n":"get"', '"n":"got"'),
    "a step has another number": text("spans/*/*.jsonl", '"call":7', '"call":8'),
    "a span's line is gone": text("spans/*/*.jsonl", r'^\{"k":"b","l":"feed","n":"put".*\n', ""),
    "a span's end is gone": text(f"{EXECUTORS[0]}/*.jsonl", r'^\{"k":"e","i":20,.*\n', ""),
    "a span file is cut": cut("spans/*/*.jsonl"),
    "a span file is gone": gone(f"{EXECUTORS[1]}/*.jsonl"),
    "fewer bytes were put": text("spans/*/*.jsonl", r'"bytes":83800', '"bytes":83799'),
    "a marker has fewer steps": text("evidence/markers.json", r'\\"steps\\": 30', r'\\"steps\\": 29'),
    "a marker has more samples": text("evidence/markers.json", r'\\"samples\\": 3000', r'\\"samples\\": 3100'),
    "a loss is another": text("evidence/markers.json", r"2\.30258512", "2.30258513"),
    "a better accuracy in the marker": text("evidence/markers.json", r'(\\"accuracy\\": 0\.)\d', r"\g<1>9"),
    "a file is longer": text("evidence/blocks.json", r'"fileLength": 2514000', '"fileLength": 2514001'),
    "the window ends earlier": text("evidence/window.json", r'("exit_ns": \d*?)(\d)(\d{9})\b', r"\g<1>0\3"),
    "the job exits with 1": text("evidence/window.json", '"exit_code": 0', '"exit_code": 1'),
    "the job had other settings": text("evidence/job.json", '"batch_size": 100', '"batch_size": 50'),
    "another application id": text("evidence/window.json", r"_0001\b", "_0002"),
    "YARN accepts later": text(RM, r"^\d{4}(\d+ \S+ INFO \S*RMAppImpl: .* to ACCEPTED)", r"9999\1"),
    "a line of YARN is gone": text(RM, r"^.* to ACCEPTED on event.*\n", ""),
    "YARN charges more memory": text("evidence/rm-app.json", r'("memorySeconds": )(\d)', r"\g<1>9\2"),
    "YARN gave more containers": text(RM, "totalAllocatedContainers=3", "totalAllocatedContainers=4"),
    "the application ends later": text(RM, r"finishTime=(\d{9})\d", r"finishTime=\g<1>9"),
    "the driver log is cut": cut("logs/driver.stderr"),
    "a DataNode sent more": text(TRACE, r"bytes: 2533644", "bytes: 2533645"),
    "the client trace is gone": gone(TRACE),
    "a JVM began later": text("evidence/driver-jvm.log", r"^\[\d{4}", "[9999"),
    "a layer has a nanosecond more": moved,
    "a nanosecond is better known": better_known,
    "a better accuracy in the report": report("metrics", "test_accuracy", value=0.99),
    "another figure of an audit": report("audits", 0, "right", value=1),
    "another status": report("status", value="invalid"),
    "another configuration": report("configuration", "learning_rate", value=0.25),
    "a better wall": report("startup", 3, "at_ns", value=1),
    "a file more": extra,
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_changed_bundle_is_found(bundle: Bundle, name: str) -> None:
    """Whatever was changed, the hashes tell."""
    MUTATIONS[name](bundle.path)
    assert "files are as sealed" in wrong(bundle)


@pytest.mark.parametrize(
    "name", [name for name in MUTATIONS if name not in ("a file more", "the client trace is gone")]
)
def test_a_change_that_was_sealed_again_is_found_too(bundle: Bundle, name: str) -> None:
    """The report does not follow from changed evidence, or two sources no longer agree."""
    MUTATIONS[name](bundle.path)
    bundle.seal()
    assert wrong(bundle)


def test_a_hash_that_was_noted_elsewhere_finds_what_was_sealed_again(bundle: Bundle) -> None:
    """Hashes are unkeyed: a change that contradicts nothing else in the bundle is found by this alone."""
    noted = bundle.digest
    assert noted
    assert all(answer.ok for answer in verify(bundle, noted))
    report("git", "commit", value="0" * 40)(bundle.path)
    bundle.seal()
    assert wrong(bundle) == []
    assert [answer.question for answer in verify(bundle, noted) if not answer.ok] == ["hash is as noted"]


def test_the_command_line_checks_a_noted_hash(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    """`dlobd show` prints it; a wrong one is exit code 7, and the help says that hashes are unkeyed."""
    assert cli.main(["show", str(bundle.path)]) == 0
    (noted,) = re.findall(r"^hash: (\w{64})$", capsys.readouterr().out, re.MULTILINE)
    assert cli.main(["verify", str(bundle.path), "--against", noted]) == 0
    assert cli.main(["verify", str(bundle.path), "--against", "0" * 64]) == 7
    assert cli.main(["verify", "--help"]) == 0
    assert "unkeyed" in capsys.readouterr().out
