"""Tasks in a Python worker: PySpark's real daemon and worker, and two threads in place of the JVM.

`main(directory)` prints a JSON list: the seconds in the user's functions of each task.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

from dlobd import tracing
from dlobd.job.user import python_worker

WAIT_S = 0.4  # pause of the JVM before each half of the rows
LONG = "x" * 100_000
spent: list[float] = []


def slow(n: int) -> int:
    begin = time.perf_counter()
    time.sleep(0.002)
    spent[-1] += time.perf_counter() - begin
    return n


def long(n: int) -> list[str]:
    return [f"{n}{index}" for index in range(2000)]


def partition(items: Any) -> Any:
    return [slow(n) for n in items]


def lazily(n: int) -> Any:
    return (slow(m) for m in [n])


def failing(n: int) -> int:
    if n == 5:
        raise StopIteration
    return 1 // (n - 7)


def rdd(*functions: tuple[str, Callable[..., Any]]) -> bytes:
    """Return the command of an RDD, as the driver pickles it."""
    from pyspark.core.rdd import PipelinedRDD
    from pyspark.serializers import AutoBatchedSerializer, BatchedSerializer, CPickleSerializer

    ser = CPickleSerializer()
    made: Any = SimpleNamespace(_jrdd=None, _jrdd_deserializer=None, ctx=SimpleNamespace(serializer=ser))
    made._is_barrier = lambda: False
    made = PipelinedRDD(made, lambda split, items: items)
    made.func.__module__, made._is_pipelinable = "pyspark.none", lambda: True
    for name, function in functions:
        made = getattr(made, name)(function)
    return ser.dumps((made.func, None, BatchedSerializer(ser, 10), AutoBatchedSerializer(ser)))


def udf(function: Callable[[int], int]) -> list[Any]:
    """Return the command of a UDF, in which one function is called for each row."""
    from pyspark.serializers import CPickleSerializer
    from pyspark.sql.types import LongType
    from pyspark.worker_message import UDFInfo

    return [UDFInfo([memoryview(CPickleSerializer().dumps((function, LongType())))], [0], {}, 0)]


def run(kind: int, command: Any, rows: int) -> str:
    """Run one task. The JVM sends batches of ten rows. Returns the results and the traceback as text."""
    from pyspark import daemon, worker
    from pyspark.serializers import CPickleSerializer, SpecialLengths, write_int, write_with_length

    ours, theirs = socket.socketpair()
    jvm = theirs.makefile("wb")
    answer = []

    def serve() -> None:
        write_int(SpecialLengths.START_OF_INIT_MESSAGE, jvm)
        write_with_length(b"", jvm)
        for begin in range(0, rows, 10):
            if begin in (0, rows // 2):
                jvm.flush()
                time.sleep(WAIT_S)
            batch = [(n,) if kind else n for n in range(begin, begin + 10)]
            write_with_length(CPickleSerializer().dumps(batch), jvm)
        write_int(SpecialLengths.END_OF_DATA_SECTION, jvm)
        write_int(SpecialLengths.END_OF_STREAM, jvm)
        jvm.flush()

    threads = [threading.Thread(target=do) for do in (serve, lambda: answer.append(theirs.makefile("rb").read()))]
    for thread in threads:
        thread.start()
    init = SimpleNamespace(
        python_version=".".join(map(str, sys.version_info[:2])),
        task_context=SimpleNamespace(to_task_context=lambda: None),
        spark_files_dir="/tmp",
        python_includes=[],
        broadcast=SimpleNamespace(variables=[], conn_info=None, auth_secret=None),
        eval_type=kind,
        runner_conf={},
        eval_conf={},
        udf_info=command,
        split_index=0,
    )
    worker.WorkerInitInfo = SimpleNamespace(from_stream=lambda stream: init)  # type: ignore[misc, assignment]
    files = [daemon.os.fdopen(os.dup(ours.fileno()), mode, 65536) for mode in ("rb", "wb")]
    with suppress(SystemExit):
        worker.main(*files)
    files[1].flush()
    for end in (*files, ours):
        end.close()
    threads[1].join()
    return answer[0].decode(errors="replace")


def main(directory: str) -> None:
    """Run tasks: slow rows, long rows, a whole partition, a function with a lazy result, and a UDF."""
    tracing.start(directory, "python-worker")
    from pyspark import daemon, worker

    jobs = [
        (0, rdd(("map", slow), ("filter", bool)), 100),
        (0, rdd(("map", long)), 400),
        (0, rdd(("mapPartitions", partition)), 100),
        (0, rdd(("flatMap", lazily)), 100),
        (100, udf(slow), 100),
        (0, rdd(("map", failing)), 100),
        (100, udf(partial(int.__floordiv__, 1)), 100),
        (100, [None], 100),
    ]
    answers = []
    python_worker.record_sockets(daemon)
    python_worker.record(worker)
    for job in jobs:
        spent.append(0.0)
        answers.append(run(*job))
    print(json.dumps([spent, [answer[answer.find("Traceback") :] for answer in answers if "Traceback" in answer]]))
    tracing.flush()
