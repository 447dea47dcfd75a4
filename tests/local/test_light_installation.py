"""`pip install dlobd` without an extra: bundles can be read, and the size is bounded."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

CHECKOUT = Path(__file__).parents[2]
BUNDLE = CHECKOUT / "tests" / "data" / "quick-run"
LIMIT_BYTES = 350 * 10**6
RUN_ONLY = ("tensorflow", "pyspark", "mpi4py", "scipy", "matplotlib", "requests", "hdfs", "grpc")


def _closure(requirements: list[str]) -> dict[str, importlib.metadata.Distribution]:
    """Return the distributions of this environment that `requirements` need, extras left out."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = list(requirements)
    while waiting:
        requirement = Requirement(waiting.pop())
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found[name] = importlib.metadata.distribution(name)
        waiting += found[name].requires or []
    return found


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an environment with a fresh wheel of dlobd and its dependencies; return its Python."""
    folder = tmp_path_factory.mktemp("light")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    for name in ("dlobd", "jobs", "requirements", "yarn", "data"):
        shutil.copytree(CHECKOUT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "--quiet"]
    wheel = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    subprocess.run([*wheel, str(source)], check=True, timeout=90)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True, timeout=110)
    python = folder / "venv" / "bin" / "python"
    (built,) = folder.glob("*.whl")
    install = [*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(built)]
    subprocess.run(install, check=True, timeout=90)
    (site,) = (folder / "venv" / "lib").glob("python3.*/site-packages")
    metadata = importlib.metadata.PathDistribution(next(site.glob("dlobd-*.dist-info")))
    # the locked dependencies are those of this environment: copied, so that the test needs no network
    for distribution in _closure(metadata.requires or []).values():
        for file in distribution.files or ():
            path = Path(str(file.locate()))
            if path.is_file() and ".." not in file.parts:
                target = site / str(file)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
    return python


SEVERAL = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from dlobd.cli import main
for words in json.loads(sys.argv[1]):
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
        code = main(words)
    print(json.dumps([" ".join(words), code, said.getvalue()]))
"""


def _python(light: Path, cwd: Path, *arguments: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["XDG_CACHE_HOME"] = str(cwd / "cache")
    command = [str(light), *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True, timeout=170, check=True
    ).stdout


def _commands(light: Path, cwd: Path, commands: list[list[str]]) -> list[list[Any]]:
    """Return command line, exit code and stderr of each command of dlobd."""
    return [json.loads(line) for line in _python(light, cwd, "-c", SEVERAL, json.dumps(commands)).splitlines()]


def test_the_installation_is_small(light: Path) -> None:
    """dlobd and what reading bundles needs take at most 350 MB; nothing of it is for runs."""
    (site,) = (light.parents[1] / "lib").glob("python3.*/site-packages")
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert size <= LIMIT_BYTES
    assert [name for name in RUN_ONLY if (site / name).exists()] == []


def test_it_reads_a_bundle(light: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(BUNDLE, tmp_path / "other"))
    run_id = json.loads((other / "run.json").read_text())["run_id"]
    (other / "run.json").write_text((other / "run.json").read_text().replace(run_id, "20260102T030405Z-0a1b"))
    lines = ["show", "show --full", "verify", "report -o page.html", "trace -o trace.json", "compare other"]
    lines += ["export --format spans -o spans.parquet", "export --format otlp -o spans.json"]
    for line, code, said in _commands(light, tmp_path, [[*line.split(), str(BUNDLE)] for line in lines]):
        assert code == 0, (line, said)
    code = f"import dlobd; print(len(dlobd.load({str(BUNDLE)!r}).spans()))"
    assert int(_python(light, tmp_path, "-c", code)) > 100


def test_a_run_names_what_is_missing(light: Path, tmp_path: Path) -> None:
    commands = [["run", "softmax-mnist-quick"], ["doctor"], ["cluster", "up"], ["selftest"]]
    for line, code, said in _commands(light, tmp_path, commands):
        assert (code, said.count("\n")) == (3, 1), (line, said)
        assert "pip install 'dlobd[run]'" in said
