"""The user's configuration file: priority below options and variables, errors with file and line, and who reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dlobd
from dlobd import cli, paths
from dlobd.errors import UsageError
from dlobd.experiment import user_config
from dlobd.run.preflight import diagnose, machine
from tests.records import run_record

RUN_ID = "20260102T030405Z-0a1b"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config" / "dlobd" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


def run_in(directory: Path) -> None:
    path = directory / "softmax-mnist" / RUN_ID
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps(run_record(RUN_ID)))


def test_no_test_reads_the_file_of_the_person_who_runs_it() -> None:
    assert paths.config_file() != Path.home() / ".config" / "dlobd" / "config.toml"
    assert user_config.read() == user_config.UserConfig()


def test_the_file_lies_where_xdg_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/x")
    assert paths.config_file() == Path("/x/dlobd/config.toml")
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CONFIG_HOME", ignored)
        assert paths.config_file() == Path.home() / ".config/dlobd/config.toml"


def test_the_command_line_beats_a_variable_which_beats_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def named(*words: str) -> str:
        assert cli.main(["show", *words]) == 7
        return capsys.readouterr().err.partition(" Next")[0]

    assert named() == f"dlobd: there is no run in {Path.cwd()}/runs."
    file.write_text('out = "of-file"\n')
    assert named() == f"dlobd: there is no run in {Path.cwd()}/of-file."
    assert user_config.runs_dir() == Path("of-file")
    monkeypatch.setenv("DLOBD_OUT", "of-variable")
    assert named() == f"dlobd: there is no run in {Path.cwd()}/of-variable."
    assert user_config.runs_dir() == Path("of-variable")
    assert named("--out", "of-option") == f"dlobd: there is no run in {Path.cwd()}/of-option."


def test_nested_commands_have_the_defaults_too(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text('out = "~/mine"\nhadoop-conf = "/etc/none"\n')
    assert cli.main(["report"]) == 7
    assert f"there is no run in {Path.home()}/mine." in capsys.readouterr().err
    assert cli.main(["run", "softmax-mnist-quick", "--dry-run"]) == 2
    assert "/etc/none" in capsys.readouterr().err
    assert cli.main(["run", "softmax-mnist-quick", "--dry-run", "--hadoop-conf", ""]) == 0
    assert "embedded cluster" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('\nouts = "x"\n', ":2: Unknown key 'outs'; did you mean 'out'?"),
        ("out = 3\n", ":1: out must be a string, not an integer (3)."),
        ('queue = "q"\nprice = -1\n', ":2: price must be between 0 and 1000000000, not -1.0."),
        ("\n\nnoise = 10\n", ":3: noise must be between 0 and 1, not 10.0."),
        ("hadoop-conf = true\n", ":1: hadoop_conf must be a string, not a boolean (True)."),
        ("out\n", " is not valid TOML: "),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, line: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(text)
    assert cli.main(["history"]) == 2
    assert capsys.readouterr().err.startswith(f"dlobd: {file}{line}")
    assert cli.main(["--version"]) == 0  # works without the file
    assert cli.main(["-h"]) == 0


def test_a_run_is_loaded_from_the_directory_of_the_file(file: Path, tmp_path: Path) -> None:
    run_in(tmp_path / "elsewhere")
    file.write_text('out = "elsewhere"\n')
    assert dlobd.load("latest").run.run_id == dlobd.load("2026").run.run_id == dlobd.load().run.run_id == RUN_ID


def test_the_queue_is_for_external_clusters_and_jobs_without_a_queue(file: Path) -> None:
    from dlobd.cli.run import spark_options
    from dlobd.experiment import files

    file.write_text('queue = "prod"\n')
    assert spark_options(None, "", None).words == ()
    external = spark_options(None, "", Path("/conf"))
    assert external.words == ("--queue", "prod")
    assert files.load("softmax-mnist-quick", options=external).queue == "prod"
    assert files.load("softmax-mnist-quick", ["queue=own"], options=external).queue == "own"
    assert spark_options(None, "option", Path("/conf")).words == ("--queue", "option")


def test_show_uses_the_price_unless_json_is_wanted(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_in(tmp_path / "runs")
    assert cli.main(["show"]) == 0
    assert "per hour" not in capsys.readouterr().out
    file.write_text("price = 3.6\n")
    assert cli.main(["show"]) == 0
    assert "3.6 per hour" in capsys.readouterr().out
    assert cli.main(["show", "--json"]) == 0


def test_doctor_names_the_file(file: Path) -> None:
    assert machine.PARTS[0][0] == "configuration"
    check = machine.PARTS[0][1]
    assert (diagnose("c", check).verdict, str(file) in diagnose("c", check).what) == ("absent", True)
    file.write_text('queue = "q"\nout = "x"\n')
    assert diagnose("c", check).what == f"{file}: out, queue"
    file.write_text("queue = 1\n")
    assert diagnose("c", check).verdict == "broken"


def test_a_file_that_cannot_be_read_is_named(file: Path) -> None:
    file.mkdir()
    with pytest.raises(UsageError, match=f"configuration file {file} cannot be read: Is a directory"):
        user_config.read()
