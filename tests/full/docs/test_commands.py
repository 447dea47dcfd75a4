"""Every command of README and quickstart, in their order, as written, in one checkout."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import Dlobd
from tests.cluster.test_by_hand import small_archive
from tests.commands import DIR, PAGES, TOP, Command, Printed, steps

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

CODES = {"dlobd check": {0, 9, 10}}
"""Beginning of a command -> its exit codes on a busy machine; others end with 0."""

LONGEST_S = 1500


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the tracked files beside the environment of this checkout, which `make run` finds complete."""
    if Path(sys.prefix) == TOP / ".venv":  # otherwise `make run` would install the copy into this environment
        subprocess.run(["make", "-C", str(TOP), "setup"], check=True, capture_output=True, timeout=LONGEST_S)
    here = tmp_path_factory.mktemp("docs") / "dlobd"
    names = subprocess.run(["git", "-C", str(TOP), "ls-files", "-z"], capture_output=True, check=True, text=True)
    for name in filter(None, names.stdout.split("\0")):
        if (TOP / name).is_file():
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TOP / name, here / name)  # make compares times
    (here / ".venv").symlink_to(Path(sys.prefix))
    return here


class Shell:
    """A shell that keeps what `cd` and `.` have changed."""

    def __init__(self, here: Path, environment: dict[str, str]) -> None:
        self._here, self._environment = here, environment
        self._before: list[str] = []

    def __call__(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line after the earlier lines that change the shell."""
        script = "\n".join([*self._before, line])
        if line.startswith((". ", "cd ", "export ")):
            self._before.append(line)
        return subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=self._here,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
        )


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page(
    page: str, checkout: Path, short_dir: Path, jars: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The pages follow each other, as for a reader, with one cache."""
    cache = short_dir / "pages"
    own = {"DLOBD_CACHE": str(cache), "DLOBD_JARS": str(jars), "TMPDIR": str(tmp_path)}
    inherited = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "MAKEFLAGS")}
    shell = Shell(checkout, inherited | own)
    for step in steps(page):
        if isinstance(step, Printed):
            (checkout / step.name).write_text(step.text)
        elif not step.runs_elsewhere:
            ended = shell(_there(step, request, tmp_path))
            allowed = next((codes for start, codes in CODES.items() if step.line.startswith(start)), {0})
            assert ended.returncode in allowed, f"{step.line}\n{ended.stdout[-2000:]}\n{ended.stderr[-4000:]}"
    Dlobd(cache, checkout / "runs", jars).is_empty()


def _there(command: Command, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Put a real cluster where a command names a directory; its nodes have the environment at the same path."""
    if DIR not in command.line.split():
        return command.line
    cluster: Any = request.getfixturevalue("shared_cluster")
    line = command.line.replace(DIR, str(cluster.client_conf_dir))
    if " run " not in line:
        return line
    archive = small_archive(tmp_path / "own.tar.gz", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    return f"{line} --archive {archive}"
