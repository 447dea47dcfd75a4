"""Facts of a failure from the logs of a bundle: line of the script, traceback, cause in Java, phase and log."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlobd.bundle import files
from dlobd.evidence.evidence import Evidence
from dlobd.experiment.own_job import from_dict
from dlobd.record.run import Failure, Phase
from dlobd.schema import Event
from dlobd.trust.reasons import COMPARE_SOURCES, MOST_LINES, RUN_AGAIN, failure_facts
from tests.captured import Captured, copy_of

SCRIPT = "tests/foreign/word_count.py"
LOGGED = "1633803753702 2026-11-27T11:33:06.778 ERROR cluster.YarnScheduler [dispatcher]: Lost task"
FRAME = '  File "/site-packages/pyspark/worker.py", line 4327, in invoke_udf\n    run_process()\n'
IN_TASK = f"""Traceback (most recent call last):
  File "/home/ann/{SCRIPT}", line 9, in <module>
    main()
  File "/site-packages/py4j/protocol.py", line 327, in get_return_value
py4j.protocol.Py4JJavaError: An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.api.python.PythonException: An exception was thrown: Traceback (most recent call last):
{FRAME}  File "/home/ann/{SCRIPT}", line 3, in bad
    raise ValueError('bad row 2')
ValueError: bad row 2
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1642)
{LOGGED}
"""
IN_JAVA = f"""Traceback (most recent call last):
  File "/home/ann/{SCRIPT}", line 12, in <module>
    spark.read.text('x')
  File "/site-packages/py4j/protocol.py", line 327, in get_return_value
py4j.protocol.Py4JJavaError: An error occurred while calling o1.text.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.A.b(A.scala:1)
Caused by: java.io.IOException: Stream closed
\tat java.base/java.io.C.d(C.java:2)
\t... 3 more
{LOGGED}
"""


def facts(
    tmp_path: Path, reason: str, log: str = "", name: str = files.DRIVER_STDERR, status: str = "failed"
) -> Failure:
    bundle = copy_of("own-run", tmp_path)
    with (bundle / name).open("a") as file:
        file.write(log)
    evidence = Evidence(bundle)
    evidence.window["exit_code"] = 1
    job = from_dict(Captured.stored("own-run")["configuration"])
    return failure_facts(evidence, job, status, reason, (), (Event("AM registered", 1, "log"),))  # type: ignore[arg-type]


def test_an_error_in_a_task_has_the_innermost_line_of_the_script(tmp_path: Path) -> None:
    found = facts(tmp_path, "ValueError: bad row 2", IN_TASK)
    assert (found.file, found.line, found.log, found.java_cause) == (SCRIPT, 3, files.DRIVER_STDERR, None)
    assert found.traceback == (
        f'  File "/home/ann/{SCRIPT}", line 3, in bad',
        "    raise ValueError('bad row 2')",
        "ValueError: bad row 2",
    )
    assert (found.phase, found.after) == ("start-up", "AM registered")


def test_a_failure_in_java_has_the_line_of_the_call_and_the_innermost_cause(tmp_path: Path) -> None:
    found = facts(tmp_path, "IOException: Stream closed", IN_JAVA)
    assert (found.file, found.line, found.java_cause) == (SCRIPT, 12, "java.io.IOException: Stream closed")
    assert found.traceback[-1] == "py4j.protocol.Py4JJavaError: An error occurred while calling o1.text."


def test_a_traceback_of_another_error_is_no_fact(tmp_path: Path) -> None:
    found = facts(tmp_path, "the script exited with code 3", IN_TASK)
    assert (found.file, found.line, found.traceback, found.log) == (None, None, (), files.DRIVER_STDERR)


def test_the_traceback_of_a_container_counts_if_the_driver_has_none(tmp_path: Path) -> None:
    name = next((Captured.bundle("own-run").path / files.CONTAINER_LOGS).iterdir()).name
    log = f"{files.CONTAINER_LOGS}/{name}/stderr"
    found = facts(tmp_path, "ValueError: bad row 2", IN_TASK, log)
    assert (found.line, found.log) == (3, log)


def test_a_long_traceback_has_its_last_lines(tmp_path: Path) -> None:
    begin = f'Traceback (most recent call last):\n  File "{SCRIPT}", line 1, in f\n'
    found = facts(tmp_path, "RecursionError: deep", f"{begin}{FRAME * 50}RecursionError: deep\n")
    assert len(found.traceback) == MOST_LINES
    assert found.traceback[-1] == "RecursionError: deep"
    assert found.line == 1


def test_an_interrupted_run_and_a_failed_check_have_their_next_steps(tmp_path: Path) -> None:
    assert facts(tmp_path, "interrupted", status="interrupted").next_step == RUN_AGAIN
    evidence, job = Captured.evidence("own-run"), from_dict(Captured.stored("own-run")["configuration"])
    assert failure_facts(evidence, job, "invalid", "9 bytes, not 10", (), ()) == Failure(next_step=COMPARE_SOURCES)


@pytest.mark.parametrize(("capture", "phase"), [("killed-trainer", "training"), ("own-run", "Spark jobs")])
def test_the_phase_is_the_last_that_is_known_to_have_begun(capture: str, phase: str) -> None:
    stored = Captured.stored(capture)
    phases = tuple(Phase(row["phase"], row["ns"]) for row in stored["phases"])
    job = from_dict(stored["configuration"])
    assert failure_facts(Captured.evidence(capture), job, "failed", "gone", phases, ()).phase == phase
