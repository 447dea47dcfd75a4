"""Recording of spans by the process that spends the time. Standard library only: the cluster's Python imports it.

    with tracing.span(spans.OPEN) as span: ...
    tracing.instant(spans.FIRST_BATCH)

Like `logging`, a process has one recorder, which `start` opens, unless the variable `DLOBD_TRACE` is `off`. Without a
recorder `span` and `instant` do nothing.
"""

from __future__ import annotations

import atexit
import os
from pathlib import Path

from dlobd.spans import Fields, InstantKind, SpanKind
from dlobd.tracing.recorder import CHILD as CHILD
from dlobd.tracing.recorder import Cost as Cost
from dlobd.tracing.recorder import OpenSpan
from dlobd.tracing.recorder import Recorder as Recorder
from dlobd.tracing.summed_steps import EVERY as EVERY
from dlobd.tracing.summed_steps import LeftOut

SWITCH = "DLOBD_TRACE"
"""Environment variable that turns the recorder off if its value is `off`."""


class NoSpan:
    """Result of `span` while nothing is recorded."""

    def note(self, **attrs: object) -> None:
        pass

    def __enter__(self) -> NoSpan:
        return self

    def __exit__(self, *_: object) -> None:
        pass


_NO_SPAN = NoSpan()

_recorder: Recorder | None = None


def switched_off() -> bool:
    """Return True if this process and its children record nothing."""
    return os.environ.get(SWITCH) == "off"


def start(
    directory: str | Path, role: str, index: int = 0, threaded: bool = True, forks: str = CHILD
) -> Recorder | None:
    """Open this process's recorder, unless it is switched off; a second call only changes role and index. `forks`: the
    role of its forked children."""
    global _recorder
    if switched_off():
        return None
    if _recorder is None:
        _recorder = Recorder(Path(directory), role, index, threaded=threaded, forks=forks)
        os.register_at_fork(after_in_child=_after_fork)
        atexit.register(_recorder.close)
    else:
        _recorder.identify(role, index)
    return _recorder


def directory() -> str:
    """Return the directory of this process's span file; empty without a recorder."""
    return str(_recorder.directory) if _recorder is not None else ""


def switch(recorder: Recorder | None) -> None:
    """Record by `recorder`, or nothing; open spans stay open. It serves to measure the cost of recording."""
    global _recorder
    _recorder = recorder


def _after_fork() -> None:
    if _recorder is not None:
        _recorder.after_fork()


def span(kind: SpanKind, wait: Fields | None = None, detail: str = "", **attrs: object) -> OpenSpan | LeftOut | NoSpan:
    """Record an interval of this process. `wait`: fields of its wait, which are added to those of `kind`."""
    if _recorder is None:
        return _NO_SPAN
    summed = _recorder.summed
    if summed is not None and (left_out := summed.left_out(kind, wait, attrs)) is not None:
        return left_out
    return OpenSpan(_recorder, kind, wait, detail, attrs)


def instant(kind: InstantKind, at_ns: int | None = None, **attrs: object) -> None:
    """Record a point in time of this process: now, or at `at_ns`."""
    if _recorder is not None:
        _recorder.instant(kind, at_ns, **attrs)


def past(kind: SpanKind, start_ns: int, end_ns: int, detail: str = "", **attrs: object) -> None:
    """Record an interval that has ended and is long enough for a span."""
    if _recorder is not None:
        _recorder.past(kind, start_ns, end_ns, detail, **attrs)


def left_out() -> None:
    """Count an interval that was too short for a span."""
    if _recorder is not None:
        _recorder.left_out()


def identify(role: str, index: int) -> None:
    """Record the new role of this process."""
    if _recorder is not None:
        _recorder.identify(role, index)


def flush() -> None:
    """Write the buffered lines, for a process that ends without exit handlers."""
    if _recorder is not None:
        _recorder.leave()
        _recorder.flush(last=True)
