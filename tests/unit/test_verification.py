"""A changed bundle is found: a changed file by its hash, and a changed report by computing it anew."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlobd import cli
from dlobd.bundle.store import Bundle
from dlobd.experiment.files import key
from dlobd.experiment.own_job import from_dict
from dlobd.recompute.verification import verify
from tests.captured import DATA, NAMES, Captured, recomputed

RUN_ID = "20260102T030405Z-0a1b"
SEALED, REPORT = "files match their hashes", "report matches the evidence"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = Bundle(Path(shutil.copytree(DATA / "quick-run", tmp_path_factory.mktemp("sealed") / RUN_ID)))
    recomputed(found)
    return found.path


@pytest.fixture
def bundle(sealed: Path, tmp_path: Path) -> Bundle:
    return Bundle(Path(shutil.copytree(sealed, tmp_path / RUN_ID)))


def report(*keys: Any, value: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        run = json.loads((path / "run.json").read_text())
        inner = run
        for name in keys[:-1]:
            inner = inner[name]
        assert inner[keys[-1]] != value
        inner[keys[-1]] = value
        (path / "run.json").write_text(json.dumps(run, indent=1) + "\n")

    return change


def moved(*places: tuple[int, str]) -> Callable[[Path], None]:
    """Moves a nanosecond from the first to the second of two members of layers, so that sums stay."""

    def change(path: Path) -> None:
        run = json.loads((path / "run.json").read_text())
        for (layer, name), by in zip(places, (-1, 1, -1, 1), strict=False):
            run["layers"][layer][name] += by
        (path / "run.json").write_text(json.dumps(run, indent=1) + "\n")

    return change


REPORTS: dict[str, Callable[[Path], None]] = {
    "a nanosecond of another layer": moved((1, "ns"), (2, "ns"), (1, "measured_ns"), (2, "measured_ns")),
    "a nanosecond that is better known": moved((1, "between_marks_ns"), (1, "measured_ns")),
    "a better accuracy": report("metrics", "test_accuracy", value=0.99),
    "another figure of a check": report("checks", 0, "right", value=1),
    "another status": report("status", value="invalid"),
    "an event at another time": report("startup", 3, "at_ns", value=1),
}


def test_a_sealed_bundle_is_verified(bundle: Bundle) -> None:
    found = verify(bundle)
    assert found.failed == []
    assert found.checks


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("evidence/job.json", "\n", " "), ("logs/driver.stderr", "OS info", "os info"), ("run.json", "\n", " ")],
)
def test_a_changed_file_is_found(bundle: Bundle, name: str, old: str, new: str) -> None:
    """Even if its size and the values in it are the same."""
    path = bundle.path / name
    text = path.read_text()
    path.write_text(text.replace(old, new, 1))
    assert path.read_text() != text
    assert verify(bundle).failed == [SEALED]


def test_another_size_than_at_collection_is_found(bundle: Bundle) -> None:
    with (bundle.logs / "driver.stderr").open("a") as file:
        file.write("\n")
    bundle.seal()
    assert verify(bundle).failed == [REPORT, "evidence-complete"]


def test_missing_added_and_damaged_evidence_is_found(bundle: Bundle) -> None:
    (bundle.path / "logs/daemons/namenode-audit.log").unlink()
    assert SEALED in verify(bundle).failed
    (bundle.evidence / "job.json").write_text("{")
    bundle.seal()
    assert REPORT in verify(bundle).failed


@pytest.mark.parametrize("name", NAMES)
def test_a_run_keeps_its_key_in_later_versions(name: str) -> None:
    """A setting that was added later counts only if it is set."""
    run = Captured.bundle(name).read_json()
    assert key(from_dict(run["configuration"])) == run["experiment_key"]
    assert key(from_dict(run["configuration"] | {"record_every_steps": 2})) != run["experiment_key"]


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_that_does_not_follow_from_its_evidence_is_found(bundle: Bundle, name: str) -> None:
    REPORTS[name](bundle.path)
    bundle.seal()
    assert verify(bundle).failed == [REPORT]


def test_settings_that_the_job_did_not_get_are_found(bundle: Bundle) -> None:
    report("configuration", "learning_rate", value=0.25)(bundle.path)
    bundle.seal()
    assert "configuration, key and job agree" in verify(bundle).failed


def test_changed_evidence_changes_the_report(bundle: Bundle) -> None:
    path = bundle.evidence / "window.json"
    exit_ns = json.loads(path.read_text())["exit_ns"]
    path.write_text(path.read_text().replace(str(exit_ns), str(exit_ns - 5 * 10**9)))
    bundle.seal()
    assert verify(bundle).failed == [REPORT, "evidence-consistent", "window"]


def test_a_noted_hash_finds_a_bundle_that_was_sealed_again(bundle: Bundle) -> None:
    """Hashes are unkeyed: a change that contradicts nothing else in the bundle is found by this alone."""
    noted = bundle.digest
    assert noted
    assert verify(bundle, noted).failed == []
    report("git", "commit", value="0" * 40)(bundle.path)
    bundle.seal()
    assert verify(bundle).failed == []
    assert verify(bundle, noted).failed == ["hash matches the expected hash"]


def test_the_command_line_checks_a_noted_hash(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", str(bundle.path)]) == 0
    (noted,) = re.findall(r"^hash: (\w{64})$", capsys.readouterr().out, re.MULTILINE)
    assert cli.main(["verify", str(bundle.path), "--against", noted]) == 0
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == f"verified: {len(bundle.files())} files, 30 checks passed, 0 unknown"
    )
    assert cli.main(["verify", str(bundle.path), "--against", "0" * 64]) == 7
    assert cli.main(["verify", "--help"]) == 0
    assert "no key" in capsys.readouterr().out


def test_the_command_line_lists_checks_that_did_not_pass(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(bundle.path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert cli.main(["verify", str(bundle.path), "--full"]) == 0
    assert "steps-recorded: the ranks recorded 60 step spans" in capsys.readouterr().out
    assert cli.main(["verify", str(bundle.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {answer["ok"] for answer in found["answers"]} == {True}
    assert {check["verdict"] for check in found["checks"]} == {"pass"}
    (bundle.path / "logs/daemons/datanode-0-clienttrace.log").unlink()
    assert cli.main(["verify", str(bundle.path)]) == 7
    assert "unknown input-sent-by-datanodes" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["verify", "trace", "export"])
def test_a_bundle_without_its_evidence_says_so(
    verb: str, bundle: Bundle, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(bundle.evidence)
    options = ["--format", "spans"] if verb == "export" else []
    assert cli.main([verb, str(bundle.path), *options]) == 7
    told = capsys.readouterr()
    assert f"{bundle.path} has no directory evidence/" in told.out + told.err
    assert "nothing was submitted" not in told.out + told.err


@pytest.mark.parametrize("verb", [["show"], ["report", "-o", "x.html"]])
def test_a_changed_run_json_is_one_warning(
    verb: list[str], bundle: Bundle, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main([verb[0], str(bundle.path), *verb[1:]]) == 0
    assert capsys.readouterr().err == ""
    report("metrics", "test_accuracy", value=0.99)(bundle.path)
    (bundle.logs / "new").write_text("")
    assert cli.main([verb[0], str(bundle.path), *verb[1:], *(["--force"] if verb[0] == "report" else [])]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    what = f"{bundle.path} differs from its hashes: logs/new: not in hashes, and 1 more differences."
    assert line == f"dlobd: warning: {what} Next: dlobd verify {bundle.path.name}"


def test_a_plain_script_has_the_path_of_its_output_and_no_launcher(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(shutil.copytree(DATA / "own-run", tmp_path / RUN_ID))
    (path / "logs" / "driver.stdout").write_text("to: 2000\nbe: 1\nor")
    assert cli.main(["show", str(path)]) == 0
    shown = capsys.readouterr().out
    assert f"output: {path / 'logs' / 'driver.stdout'} (3 lines)" in shown.splitlines()
    assert "launcher tfos" not in shown
    assert "scheduler yarn (client)" in " ".join(shown.split())


def test_a_bundle_of_an_earlier_dlobd_lacks_members_and_still_verifies(bundle: Bundle) -> None:
    run = bundle.read_json()
    for name in ("failure", "applications", "phases"):
        del run[name]
    bundle.write(run)
    bundle.seal()
    assert bundle.read().phases == ()
    assert verify(bundle).failed == []
