"""Causes of failures in Java: the innermost message leads, and no class."""

from __future__ import annotations

import pytest

from dlobd.job.launchers.failure import error_line, java_cause, without_classes
from dlobd.job.launchers.tfos_compat import NotRegistered

QUEUE = "Application application_1_0001 submitted by user ann to unknown queue: gpu"
SUBMIT = f"Failed to submit application_1_0001 to YARN : {QUEUE}"
REFUSED = (
    "Call From a to b:8020 failed on connection exception: java.net.ConnectException: Connection refused; see wiki"
)
ABORTED = "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times: java.lang.IllegalStateException: boom"
SLOTS = "[SPARK-24819]: Barrier execution mode does not allow run a barrier stage that requires more slots"
YARN, SPARK = "org.apache.hadoop.yarn.exceptions.YarnException", "org.apache.spark.SparkException"
CAUSES = {
    "unknown queue": ([(YARN, SUBMIT)], QUEUE),
    "wrapped": ([(SPARK, "YARN said no"), ("org.apache.hadoop.ipc.RemoteException", f"{YARN}: {QUEUE}")], QUEUE),
    "no right": (
        [("org.apache.hadoop.security.AccessControlException", "User ann may not use gpu")],
        "User ann may not use gpu",
    ),
    "too large": (
        [("java.lang.IllegalArgumentException", "Required memory (9 MB)")],
        "IllegalArgumentException: Required memory (9 MB)",
    ),
    "barrier slots": ([("org.apache.spark.scheduler.BarrierJobSlotsNumberCheckFailed", SLOTS)], SLOTS),
    "absent input": (
        [("org.apache.hadoop.mapred.InvalidInputException", "Input path does not exist: x")],
        "Input path does not exist: x",
    ),
    "absent input, as Hadoop reports it": (
        [
            ("org.apache.hadoop.mapred.InvalidInputException", "Input path does not exist: hdfs:/x"),
            ("java.io.IOException", "Input path does not exist: hdfs:/x"),
        ],
        "Input path does not exist: hdfs:/x",
    ),
    "an outer message quotes the innermost": (
        [("java.net.ConnectException", REFUSED), ("java.net.ConnectException", "Connection refused")],
        f"ConnectException: {REFUSED}",
    ),
    "a failed task": ([(SPARK, ABORTED), ("java.lang.IllegalStateException", "boom")], ABORTED),
    "no message": (
        [("java.lang.RuntimeException", "x"), ("java.lang.NullPointerException", "")],
        "NullPointerException",
    ),
    "a class in the message": (
        [("java.lang.ClassNotFoundException", "no.such.Thing")],
        "ClassNotFoundException: no.such.Thing",
    ),
    "several lines": ([(SPARK, "one\n two")], "one two"),
}
BEGINS = {
    "py4j": "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: ",
    "spark-submit": '2 INFO a.B [main]: c\nException in thread "main" ',
}


def trace(begin: str, thrown: list[tuple[str, str]]) -> str:
    """Return a stack trace of Java, and a line of a log after it."""
    frames = "\n\tat org.apache.hadoop.A.b(A.java:1)\n\tat py4j.Gateway.invoke(Gateway.java:238)\n\t... 3 more\n"
    texts = [f"{name}: {message}{frames}" if message else f"{name}{frames}" for name, message in thrown]
    return begin + "Caused by: ".join(texts) + "1 2026-11-26T10:00:00.000 INFO util.X [main]: Shutdown hook called\n"


@pytest.mark.parametrize("begin", BEGINS)
@pytest.mark.parametrize("case", CAUSES)
def test_the_innermost_message_of_java_leads(case: str, begin: str) -> None:
    thrown, cause = CAUSES[case]
    assert java_cause(trace(BEGINS[begin], thrown)) == cause


def test_errors_of_python_are_their_last_line_with_a_short_class() -> None:
    assert java_cause("ValueError: no\n  in x") is None
    assert error_line(ValueError("boom")) == "ValueError: boom"
    own = type("Unavailable", (Exception,), {"__module__": "tensorflow.python.framework.errors_impl"})
    assert error_line(own("Socket closed")) == "Unavailable: Socket closed"
    assert error_line(own("/a.b/c: see x.y.Z: no")) == "Unavailable: /a.b/c: see x.y.Z: no"


def test_wrappers_of_yarn_are_left_out() -> None:
    text = "User class threw exception: org.apache.spark.SparkException: org.x.Y: told\n  you"
    assert without_classes(text) == "told you"
    assert without_classes("Uncaught: a.b: c") == "Uncaught: a.b: c"


def test_missing_nodes_are_counted_against_the_executors() -> None:
    few = NotRegistered(3, 2, {("worker", 0), ("worker", 1)})
    assert error_line(few) == "3 nodes were asked for, 2 executors registered"
    ill = NotRegistered(3, 3, {("worker", 0), ("worker", 1)})
    assert error_line(ill) == "3 nodes were asked for, 2 nodes registered with TensorFlowOnSpark"
    assert error_line(NotRegistered(2, None, set())).endswith("2 nodes were asked for, 0 nodes registered with "
                                                               "TensorFlowOnSpark")  # fmt: skip
