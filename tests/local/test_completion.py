"""Shell completion in a real bash: commands, options, experiments, sweeps, settings with their values, and runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
source <("$1/dlobd" --show-completion bash)
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_dlobd_completion dlobd
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "proposals"),
    [
        ("dlobd hist", ["history"]),
        ("dlobd run --qu", ["--queue"]),
        ("dlobd run softmax-mnist-", ["softmax-mnist-quick"]),
        ("dlobd run --job script.py softmax", []),
        ("dlobd sweep stack", ["stack-quick"]),
        ("dlobd run --set batch", ["batch_size="]),
        ("dlobd run --set deploy", ["deploy_mode=client", "deploy_mode=cluster"]),
        ("dlobd run --set model = resn", ["resnet20", "resnet56"]),  # bash splits words at `=`
        ("dlobd run --set deploy_mode =", ["client", "cluster"]),
        ("dlobd show 2026", ["20260202T030405Z-0a1b", "20260102T030405Z-0a1b"]),
        ("dlobd show lat", ["latest"]),
        ("dlobd show --out elsewhere 2026", ["20260302T030405Z-0a1b"]),
    ],
)
def test_bash_completes(words: str, proposals: list[str], tmp_path: Path) -> None:
    for run in (
        "runs/one/20260102T030405Z-0a1b",
        "runs/two/20260202T030405Z-0a1b",
        "elsewhere/x/20260302T030405Z-0a1b",
    ):
        (tmp_path / run).mkdir(parents=True)
    programs = str(Path(sys.executable).parent)
    path = f"{programs}:{os.environ['PATH']}"
    command = ["bash", "--norc", "-c", SCRIPT, "bash", programs, *words.split()]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.stdout.split() == proposals, done.stderr
