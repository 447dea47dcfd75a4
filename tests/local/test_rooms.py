"""Imports of daemons in fresh processes."""

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


@pytest.mark.parametrize("module", DAEMONS)
def test_a_python_worker_imports_no_http_client_before_it_records(module: str) -> None:
    """Spark's Python daemon and a trainer's process open the recorder first: no span contains an earlier import."""
    heavy = ("requests", "urllib3", "hdfs", "numpy", "pandas", "tensorflow", "pyspark")
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=110, check=True)
    assert done.stdout.strip() == "[]"
