"""A span while it is open, and until it is written: the only thing that recording leaves in the measured thread."""

from __future__ import annotations

from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dlobd.spans import SpanKind
from dlobd.tracing import encoding

if TYPE_CHECKING:
    from dlobd.tracing.recorder import Recorder


class OpenSpan:
    """The context manager that `span` returns, and what waits to be written of it."""

    __slots__ = (
        "_attrs", "_end_ns", "_id", "_layer", "_name", "_noted", "_parent", "_recorder", "_stack", "_start_ns",
        "_thread", "_wait", "_written",
    )  # fmt: skip

    def __init__(
        self, recorder: Recorder, kind: SpanKind, wait: dict[str, Any] | None, detail: str, attrs: dict[str, Any]
    ) -> None:
        self._recorder = recorder
        self._layer = kind.layer
        self._name = kind.text(detail) if detail else kind
        self._wait = {**kind.wait, **wait} if wait else kind.wait
        self._attrs = attrs
        self._noted: dict[str, Any] | None = None
        self._end_ns = 0
        self._written = False

    def note(self, **attrs: Any) -> None:
        """Adds what is known only later, such as a number of bytes, to the span's end."""
        self._noted = {**self._noted, **attrs} if self._noted else attrs

    def __enter__(self) -> OpenSpan:
        recorder = self._recorder
        if get_ident() == recorder._main:
            stack, self._thread = recorder._main_stack, ""
        else:
            stack, self._thread = recorder._of_thread()
        self._stack = stack
        self._parent = stack[-1] if stack else 0
        self._id = span_id = next(recorder._ids)
        stack.append(span_id)
        self._start_ns = recorder._now()
        recorder._queue.append(self)
        if recorder._alone:
            recorder._start_thread()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None:
            self.note(error=kind.__name__)
        recorder, stack = self._recorder, self._stack
        self._end_ns = recorder._now()
        if self._written:  # in this order, see `line`
            recorder._queue.append(self._end_line())
        if stack and stack[-1] == self._id:
            stack.pop()
        elif self._id in stack:
            del stack[stack.index(self._id) :]
        if not stack:
            # PySpark's workers and multiprocessing's children leave by os._exit, which runs no exit handler
            recorder.flush()

    def line(self) -> str:
        """The span as far as it is known, without a line break: begin and end, or the begin alone."""
        # First this, then the look at the end; `__exit__` the other way round: whatever comes in between, the end is
        # written, at worst once more than needed.
        self._written = True
        end_ns = self._end_ns
        kind = "s" if end_ns else "b"
        what = encoding.what(self._layer, self._name)
        text = f'{{"k":"{kind}","i":{self._id},"p":{self._parent},{what},"t":{self._start_ns}'
        if end_ns:
            text += f',"d":{end_ns - self._start_ns}'
        if self._wait:
            text += f',"w":{encoding.members(self._wait)}'
        attrs = self._attrs
        if end_ns and self._noted:
            attrs = {**attrs, **self._noted} if attrs else self._noted
        if attrs:
            text += f',"a":{encoding.members(attrs)}'
        if self._thread:
            text += f',"th":{encoding.quoted(self._thread)}'
        return text + "}"

    def _end_line(self) -> dict[str, Any]:
        line: dict[str, Any] = {"k": "e", "i": self._id, "t": self._end_ns}
        return line | {"a": self._noted} if self._noted else line
