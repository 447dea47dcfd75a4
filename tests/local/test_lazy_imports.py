"""Imports that a fresh process must not make."""

from __future__ import annotations

import subprocess
import sys

import pytest

DAEMONS = [
    "dlobd.job.launchers.worker_daemon",
    "dlobd.job.launchers.tfos_daemon",
    "dlobd.job.launchers.tfos_stock_daemon",
    "dlobd.job.launchers.distributor_daemon",
    "dlobd.job.user.daemon",
    "dlobd.job.user.stock_daemon",
    "dlobd.job.launchers.barrier",
    "dlobd.job.launchers.trainer_process",
]


# Python daemons and trainers record from their first line on: no span may contain an earlier import
HEAVY = "requests urllib3 hdfs numpy pandas tensorflow pyspark"
CASES = [(f"import {module}", HEAVY) for module in DAEMONS]
CASES += [
    ("import dlobd; assert dlobd.load", "pandas"),
    (
        "from dlobd.axes import REGISTRIES; [row.reason() for each in REGISTRIES.values() for row in each]",
        "tensorflow pyspark numpy dlobd.job.datasets.mnist dlobd.job.datasets.cifar10 dlobd.job.datasets.synthetic",
    ),
]


@pytest.mark.parametrize(("code", "absent"), CASES)
def test_heavy_packages_are_imported_later(code: str, absent: str) -> None:
    code = f"import sys; {code}; print([name for name in {absent.split()} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=110, check=True)
    assert done.stdout.strip() == "[]"
