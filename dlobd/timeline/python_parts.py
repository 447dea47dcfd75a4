"""Places the parts of a task in a Python worker: transfer, (de)serialisation and PySpark's loop, inside its user code.

A worker records sums of slices (`dlobd.job.user.python_worker`). In its slice, each sum becomes one span: first the
reads, last the writes; the rest between them is the user's function. So the time of each part is exact in whole slices;
inside a slice, its place is not known. A slice with other spans, such as the user's own, is not divided.
"""

import itertools
from collections.abc import Iterator

from dlobd import spans as kinds
from dlobd.evidence.recorder import Instant, RecordedProcess, RecordedSpan
from dlobd.spans import SpanKind


def placed(process: RecordedProcess) -> list[RecordedSpan]:
    """Return the spans of the parts, with IDs of their own."""
    slices = [instant for instant in process.instants if instant.name == kinds.PYTHON_SLICE]
    if not slices:
        return []
    ids = itertools.count(1 + max((span.id for span in process.spans), default=0))
    main = [span for span in process.spans if not span.thread]
    found = []
    for task in (span for span in main if span.kind is kinds.USER_CODE and not span.parent):
        inside = [span for span in main if span is not task and task.start_ns <= span.start_ns < task.end_ns]
        for piece in (one for one in slices if task.start_ns < one.at_ns <= task.end_ns):
            begin_ns = piece.at_ns - piece.attrs["ns"]
            divided = any(span.start_ns < piece.at_ns and begin_ns < span.end_ns for span in inside)
            if begin_ns >= task.start_ns and not divided:
                for kind, start_ns, end_ns in _parts(piece):
                    names = next(ids), task.id, kind.layer, str(kind)
                    found.append(RecordedSpan(*names, start_ns, end_ns, False, {}, {}, ""))
    return found


def _parts(piece: Instant) -> Iterator[tuple[SpanKind, int, int]]:
    """Yield kind, start and end of each part of a slice, except the user's function and parts of no time."""
    sums, end_ns = piece.attrs, piece.at_ns
    start_ns = end_ns - sums["ns"]
    loop_ns = 0
    if "function_ns" in sums:  # each call is timed
        loop_ns = sums["ns"] - sums["read_ns"] - sums["serialise_ns"] - sums["function_ns"] - sums["write_ns"]
    before = (kinds.READ_FROM_JVM, sums["read_ns"]), (kinds.SERIALISE_ROWS, sums["serialise_ns"])
    for kind, ns in (*before, (kinds.PYSPARK_LOOP, loop_ns)):
        if ns > 0:
            yield kind, start_ns, start_ns + ns
            start_ns += ns
    if sums["write_ns"] > 0:
        yield kinds.WRITE_TO_JVM, end_ns - sums["write_ns"], end_ns
