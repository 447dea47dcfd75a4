"""Parts of the tasks of PySpark's real worker, whose functions and input wait for known times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from dlobd import spans as kinds
from dlobd.evidence.recorder import RecordedProcess
from tests.recorded import read_all
from tests.worker_tasks import WAIT_S

S = 10**9
SUMS = ("ns", "read_ns", "serialise_ns", "write_ns")


@pytest.fixture(scope="module")
def ran(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[RecordedProcess, list[dict[str, Any]], list[float], list[str]]:
    """Return the process, the parts of its tasks, and the script's own seconds in the functions, with tracebacks."""
    directory = tmp_path_factory.mktemp("spans")
    code = f"from tests.worker_tasks import main; main({str(directory)!r})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == 0, done.stderr
    (process,) = read_all(directory)
    own_s, tracebacks = json.loads(done.stdout)
    return process, [span.attrs for span in process.named(kinds.USER_CODE)], own_s, tracebacks


def test_functions_of_rows_are_timed(ran) -> None:
    _, tasks, own_s, _ = ran
    for task, spent_s in ((tasks[0], own_s[0]), (tasks[4], own_s[4])):
        assert task["how"] == "sampled"
        assert task["function_ns"] == pytest.approx(spent_s * S, rel=0.05)
    assert [task["evaluation"] for task in tasks] == ["NON_UDF"] * 4 + ["SQL_BATCHED_UDF", "NON_UDF", "SQL_BATCHED_UDF"]


def test_functions_of_partitions_and_lazy_results_are_not_separated_from_the_loop(ran) -> None:
    _, tasks, own_s, _ = ran
    for task, spent_s in zip(tasks[2:4], own_s[2:4], strict=True):
        assert task["how"] == "unknown"
        assert "function_ns" not in task
        assert task["ns"] - task["read_ns"] - task["serialise_ns"] - task["write_ns"] >= spent_s * S


def test_waits_for_the_jvm_are_reads(ran) -> None:
    """The second pause begins after the first half was sent, while the worker works on that half."""
    _, tasks, *_ = ran
    assert all(task["read_ns"] >= 0.5 * WAIT_S * S for task in tasks[:5])


def test_long_rows_cost_serialisation(ran) -> None:
    _, tasks, *_ = ran
    shares = [(task["serialise_ns"] + task["write_ns"]) / (task["ns"] - task["read_ns"]) for task in tasks]
    assert max(shares[0], *shares[2:5]) < 0.1 < 0.2 < shares[1]


def test_slices_sum_to_their_task(ran) -> None:
    process, tasks, *_ = ran
    slices = [instant for instant in process.instants if instant.name == kinds.PYTHON_SLICE]
    for span, task in zip(process.named(kinds.USER_CODE), tasks, strict=True):
        inside = [one.attrs for one in slices if span.start_ns < one.at_ns <= span.end_ns]
        assert len(inside) < 100
        assert {name: sum(one[name] for one in inside) for name in SUMS} == {name: task[name] for name in SUMS}
        assert task["ns"] <= span.end_ns - span.start_ns


def test_a_traceback_is_that_of_pyspark(ran) -> None:
    """PySpark's own words for StopIteration, the line of the user's function, and no line of the hooks."""
    *_, (rows, udf, none) = ran
    assert "STOP_ITERATION_OCCURRED" in rows
    assert "in failing" in rows
    assert "ZeroDivisionError" in udf
    assert "in read_udfs" in none
    assert not any(hooks in rows + udf + none for hooks in ("python_worker.py", "tfos_compat.py"))
