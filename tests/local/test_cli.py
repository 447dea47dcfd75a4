"""The command line as a process: signals, and readers that leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_a_command_alike(tmp_path: Path, number: signal.Signals) -> None:
    """Both run the finally blocks of what is under way, then exit with 130 and one line."""
    code = f"""
import sys, time, types
import dlobd.run
from dlobd import cli
runner = types.ModuleType("dlobd.run.runner")
def run(experiment, out, progress, elsewhere, observer):
    try:
        progress("working")
        time.sleep(60)
    finally:
        open({str(tmp_path / "cleaned")!r}, "w").close()
runner.run = run
sys.modules["dlobd.run.runner"] = dlobd.run.runner = runner
sys.exit(cli.main(["run"]))
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, text=True
    )
    try:
        assert "working" in child.stderr.readline()
        child.send_signal(number)
        _, err = child.communicate(timeout=20)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 130
    assert err.splitlines()[-1] == "dlobd: interrupted."
    assert (tmp_path / "cleaned").exists()


@pytest.mark.parametrize("words", [("list",), ("show", str(DATA / "quick-run"))])
def test_a_reader_that_leaves_early_is_no_failure(tmp_path: Path, words: tuple[str, ...]) -> None:
    """`dlobd list | head -1` ends quietly."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "dlobd", *words],
        stdout=write,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
        timeout=30,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
