"""Directories as people name them: spaces, quotes, commas, dollars and letters beyond ASCII, wherever dlobd lies."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlobd.paths import PACKAGE
from tests.cluster.conftest import Dlobd, warnings_of
from tests.cluster.test_ways import explained

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(500)]

AWKWARD = 'with space é "q" $x, (y)'


@pytest.fixture
def awkward(jars: Path) -> Iterator[Any]:
    """The command line of a virtual environment, with checkout, cache and PySpark in such a directory; bundles go into
    one that has single quotes too."""
    with tempfile.TemporaryDirectory(prefix="dl-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        top = Path(directory) / AWKWARD
        venv = top / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=60)
        site, real = next(venv.glob("lib/python3*/site-packages")), Path(sysconfig.get_path("purelib"))
        (site / "pyspark").symlink_to(real / "pyspark")
        (top / "clone").mkdir()
        for name in ("dlobd", "jobs", "yarn"):
            shutil.copytree(PACKAGE.parent / name, top / "clone" / name)
        (top / "clone" / "data").symlink_to(PACKAGE.parent / "data")
        (site / "a.pth").write_text(f"{top / 'clone'}\n{real}\n")
        (top / "cache").mkdir()
        command = Dlobd(top / "cache", Path(directory) / "it's mine" / "runs", jars)
        command = replace(command, python=str(venv / "bin" / "python"))
        yield command
        try:
            command.is_empty()
        finally:
            command.end_all()


def test_a_run_where_every_path_is_awkward(awkward: Any) -> None:
    """The main job, on a cluster of its own: it ends well and is explained, and nothing was looked for elsewhere."""
    ended = awkward.run(within_s=450, PYTHONPATH="")
    assert ended.code == 0, ended.err
    assert explained(ended.bundle)["yarn"] > 0
    assert warnings_of(record := ended.bundle.read_json()) == []
    assert ended.bundle.path.is_relative_to(awkward.out)
    assert str(awkward.cache.parent) not in " ".join(record["command"])
