"""Advice of messages: commands that dlobd prints work where it prints them, and an error does not come back."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from dlobd import cli, errors
from dlobd.axes import VIEWS
from dlobd.cli.main import app
from dlobd.errors import DlobdError
from dlobd.experiment.settings import SETTINGS
from tests.captured import DATA

TOP = Path(__file__).parents[2]
COMMAND = typer.main.get_command(app)
ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, DlobdError)}


def _texts(source: Path) -> Iterator[tuple[int, str]]:
    """Yields the remedies of a module's errors, with X for each value in them."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
            for argument in node.args[1:2]:
                for part in (argument.body, argument.orelse) if isinstance(argument, ast.IfExp) else (argument,):
                    if isinstance(part, ast.Constant):
                        yield node.lineno, str(part.value)
                    elif isinstance(part, ast.JoinedStr):
                        values = [str(one.value) if isinstance(one, ast.Constant) else "X" for one in part.values]
                        yield node.lineno, "".join(values)


REMEDIES = [
    (f"{source.relative_to(TOP)}:{line}", text)
    for source in sorted((TOP / "dlobd").rglob("*.py"))
    for line, text in _texts(source)
]


def _options(command: typer.core.TyperCommand | typer.core.TyperGroup) -> set[str]:
    own = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    return own.union(*(_options(one) for one in getattr(command, "commands", {}).values()))


OPTIONS = _options(COMMAND)
FOREIGN = ("--editable", "--properties-file", "--shm-size")
"""Options of pip, spark-submit and docker."""


@pytest.mark.parametrize(("where", "remedy"), REMEDIES, ids=[where for where, _ in REMEDIES])
def test_remedies_name_commands_options_and_settings_that_exist(where: str, remedy: str) -> None:
    for line in re.findall(r"(?:^|`|use |with |or |; )dlobd ([a-z-][^`;,]*)", remedy):
        command, words = COMMAND, line.split()
        while words and hasattr(command, "commands"):
            assert words[0] in command.commands or words[0] in OPTIONS, (where, line)
            command = command.commands.get(words.pop(0), command)
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", remedy):
        assert option in OPTIONS or option in FOREIGN, (where, option)
    for key in re.findall(r"--set ([a-z_.]+)=", remedy):
        assert key.replace(".", "_") in SETTINGS, (where, key)


def test_the_remedies_are_found() -> None:
    assert len(REMEDIES) > 150
    assert any("dlobd cluster down" in text for _, text in REMEDIES)


@pytest.mark.parametrize(
    "words",
    [
        "run nothing",
        "run --nope",
        "run softmax-mnist-quick --set workers=50 --dry-run",
        "run softmax-mnist-quick --set workers=60 --set train_samples=6000 --set batch_size=10 --dry-run",
        "run softmax-mnist-quick --set batch_size=77 --dry-run",
        "run softmax-mnist-quick --set channel=carrier-pigeon --dry-run",
        "run mine.py --set scheduler=none --dry-run",
        "run mine.py --set executor_memory_mb=0 --dry-run",
        "run --with numpy",
        "list runs",
        "data fetch nothing",
        "export --format nothing",
    ],
)
def test_the_same_failure_does_not_come_back(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option of the advice is added to the command, a command of the advice is run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine.py").write_text("print(1)\n")
    first = shlex.split(words)
    assert cli.main(first) in (2, 3)
    failure, _, advice = capsys.readouterr().err.strip().splitlines()[-1].partition(" Next: ")
    advice = re.split(r", or |, then |, and ", advice)[0].removeprefix("add ").replace("SCRIPT", "mine.py")
    assert advice.startswith(("dlobd ", "--")), advice
    again = shlex.split(advice)[1:] if advice.startswith("dlobd ") else [*first, *shlex.split(advice)]
    if "--dry-run" not in again and again[0] == "run" and "--help" not in again:
        again.append("--dry-run")
    code = cli.main(again)
    told = capsys.readouterr().err
    assert failure not in told
    assert code == 0 or again[-1] == "--help", told


def test_a_message_quotes_what_the_user_typed(capsys: pytest.CaptureFixture[str]) -> None:
    for typed in ("spark.executor.memory=2g", "wrkers=3", "batch_size=77", "workers=0", "model=nothing"):
        assert cli.main(["run", "softmax-mnist-quick", "--set", typed, "--dry-run"]) == 2
        line = capsys.readouterr().err
        assert line.startswith(f"dlobd: --set {typed}: ")
        assert "shipped" not in line
        assert "spark_executor_memory" not in line


@pytest.mark.parametrize("words", [["--job", "bad.py"], ["bad.py"], ["bad.py", "--dry-run"]])
def test_a_syntax_error_is_found_before_anything_starts(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text("import os\nx = (\n")
    assert cli.main(["run", *words]) == 2
    assert capsys.readouterr().err == ("dlobd: bad.py:2: SyntaxError: '(' was never closed. Next: correct the script\n")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.py"]


def test_a_script_runs_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine.py").write_text("print(1)\n")
    plans = []
    for words in (["mine.py", "a", "b c"], ["--job", "mine.py", "a", "b c"]):
        assert cli.main(["run", *words, "--dry-run"]) == 0
        plans.append(capsys.readouterr().out)
    assert plans[0] == plans[1]
    assert f"{tmp_path}/mine.py a 'b c'" in plans[0]


@pytest.mark.parametrize("inside", [True, False])
def test_the_commands_that_a_run_prints_work_where_it_prints_them(
    inside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also for a bundle outside of ./runs with a space in its path; each command is one line without a full stop."""
    here = tmp_path / "elsewhere"
    here.mkdir()
    monkeypatch.chdir(tmp_path if inside else here)
    monkeypatch.setenv("COLUMNS", "40")
    path = Path(shutil.copytree(DATA / "quick-run", tmp_path / "my runs" / "é" / "20260102T030405Z-0a1b"))
    views = [["--view", view] for view in VIEWS.names()]
    for words in ([], ["--full"], *views):
        assert cli.main(["show", str(path), *words]) == 0
        printed = re.findall(r"^\S+: dlobd (.*)$", capsys.readouterr().out, re.MULTILINE)
        assert bool(printed) == (not words)
        for line in printed:
            if not line.startswith("show"):
                assert cli.main([*shlex.split(line)]) == 0, line
            else:
                assert Path(shlex.split(line)[1]).resolve() == path
    assert capsys.readouterr().err == ""
