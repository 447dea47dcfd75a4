"""Run bundles as pandas data frames, for notebooks and for the scripts in `analysis/`.

Times are int64 nanoseconds. Those called `start_ns` and `end_ns` count from the start of the run's window, so that
frames of several runs can be laid over each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from dlobd import spans as kinds
from dlobd.bundle.store import Bundle, find
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.resources import SampledHost
from dlobd.layers import UNATTRIBUTED
from dlobd.measures import resource_use
from dlobd.record.resources import LayerWaits
from dlobd.record.run import Run
from dlobd.schema import Span, Trace

SPANS = {
    "id": "str",
    "parent": "str",
    "layer": "str",
    "name": "str",
    "host": "str",
    "role": "str",
    "index": "int64",
    "pid": "int64",
    "lane": "str",
    "start_ns": "int64",
    "end_ns": "int64",
    "duration_ns": "int64",
    "source": "str",
    "resolution_ns": "int64",
    "truncated": "bool",
    "attrs": "object",
}
"""Columns of `RunBundle.spans`. `attrs` holds a dict; `parent` is empty for a lane's outermost spans."""

ATTRIBUTION = {
    "layer": "str",
    "group": "str",
    "ns": "int64",
    "percent": "float64",
    "measured_ns": "int64",
    "between_marks_ns": "int64",
    "named_wait_ns": "int64",
    "unexplained_ns": "int64",
    "lo_ns": "int64",
    "hi_ns": "int64",
    "on_core_ns": "Int64",
    "waiting_ns": "Int64",
    "blocked_ns": "Int64",
    "unknown_ns": "Int64",
}
"""Columns of `RunBundle.attribution`. `percent` is of the wall. The last four say how it passed for the thread that
carried it, waiting for a core, and sum to `ns`; they are missing where no process was looked at. The degrees of
evidence, from `measured_ns` to `unexplained_ns`, sum to a layer's `ns`; for `unattributed` all are 0."""

STEPS = {
    "role": "str",
    "index": "int64",
    "step": "int64",
    "start_ns": "int64",
    "end_ns": "int64",
    "duration_ns": "int64",
}
"""Columns of `RunBundle.steps`. `step` counts from 0 in every rank."""


EPOCHS = {
    "epoch": "int64",
    "start_ns": "int64",
    "end_ns": "int64",
    "duration_ns": "int64",
    "loss": "float64",
    "test_samples": "Int64",
    "test_accuracy": "float64",
    "evaluation_ns": "Int64",
    "from_submit_ns": "Int64",
    "from_first_touch_ns": "Int64",
}
"""Columns of `RunBundle.epochs`. `epoch` counts from 1; its accuracy was known `from_submit_ns` after submit, and
`from_first_touch_ns` after the first touch of the data."""

RESOURCES = {
    "at_ns": "int64",
    "host": "str",
    "role": "str",
    "index": "int64",
    "pid": "Int64",
    "cpu_ns": "Int64",
    "memory_bytes": "int64",
    "disk_read_bytes": "Int64",
    "disk_written_bytes": "Int64",
    "loopback_bytes": "Int64",
    "net_received_bytes": "Int64",
    "net_sent_bytes": "Int64",
    "gpu_busy_percent": "Float64",
    "gpu_memory_bytes": "Int64",
}
"""Columns of `RunBundle.resources`. Where `role` is `host`, a row is the whole machine, without a pid. `memory_bytes`
is in use then, of a process its resident set; the other figures but those of GPUs have added up since the machine or
the process was started. What a machine or a process cannot have is missing."""


class RunBundle:
    """A run as it lies on disk; nothing is changed there.

    Args:
        path: the bundle's directory, or its run.json.

    Raises:
        BundleError: it is missing, damaged or of a newer version.
    """

    def __init__(self, path: str | Path) -> None:
        self._bundle: Bundle = find(path, Path("."))
        self.run: Run = self._bundle.read()

    @property
    def path(self) -> Path:
        """The bundle's directory."""
        return self._bundle.path

    @cached_property
    def trace(self) -> Trace:
        """All spans on one time axis, read from the bundle's evidence."""
        from dlobd.timeline.assemble import assemble

        return assemble(Evidence(self.path))

    def spans(self) -> pd.DataFrame:
        """One row a span of any process, with the columns `SPANS`, in order of start."""
        spans = sorted(self.trace.spans, key=lambda span: (span.start_ns, -span.end_ns))
        return self._frame([self._span_row(span) for span in spans], SPANS)

    def attribution(self) -> pd.DataFrame:
        """One row a layer and one for `unattributed`, with the columns `ATTRIBUTION`; `ns` sums to the wall.

        Empty for a run that has no window, such as one that ended before its job was submitted."""
        wall_ns = self.run.wall_ns
        if not wall_ns:
            return self._frame([], ATTRIBUTION)
        rest_ns = self.run.unattributed_ns or 0
        rest: dict[str, Any] = {
            "layer": UNATTRIBUTED,
            "group": "-",
            "ns": rest_ns,
            "measured_ns": 0,
            "between_marks_ns": 0,
            "named_wait_ns": 0,
            "unexplained_ns": 0,
            "lo_ns": rest_ns,
            "hi_ns": rest_ns,
        }
        layers = [asdict(layer) for layer in self.run.layers]
        passed = {row.layer: row for row in self.run.core_waits.layers} if self.run.core_waits else {}
        rows = [
            {**row, "percent": 100 * row["ns"] / wall_ns, **_passed(passed.get(row["layer"]), row["ns"])}
            for row in (*layers, rest)
        ]
        return self._frame(rows, ATTRIBUTION)

    def steps(self) -> pd.DataFrame:
        """One row a training step and rank, with the columns `STEPS`, by role, index and step."""
        rows = [
            {**self._span_row(span), "step": span.call}
            for span in self.trace.spans
            if span.layer == "tensorflow" and span.call is not None and _is_step(span)
        ]
        return self._frame(rows, STEPS).sort_values(["role", "index", "step"], ignore_index=True)

    def epochs(self) -> pd.DataFrame:
        """One row per epoch, with the columns `EPOCHS`; what was not evaluated is missing. Empty for a run that marked
        none."""
        run = self.run
        start_ns = run.window.start_ns if run.window else 0
        rows = [
            {
                **asdict(epoch),
                "start_ns": epoch.end_ns - epoch.ns - start_ns,
                "end_ns": epoch.end_ns - start_ns,
                "duration_ns": epoch.ns,
                "from_submit_ns": run.from_submit_ns(epoch),
                "from_first_touch_ns": run.from_first_touch_ns(epoch),
            }
            for epoch in run.epochs
        ]
        return self._frame(rows, EPOCHS)

    def resources(self) -> pd.DataFrame:
        """One row a sample of the machine of dlobd, and one of each process in it, with the columns `RESOURCES`.

        Empty for a run that was not sampled."""
        evidence, window = Evidence(self.path), self.run.window
        found = evidence.resources
        if found is None or window is None:
            return self._frame([], RESOURCES)
        rows = [*_host_rows(found), *_process_rows(evidence, found)]
        frame = self._frame(rows, RESOURCES)
        frame["at_ns"] -= window.start_ns
        return frame.sort_values(["at_ns", "role", "index", "pid"], ignore_index=True)

    def _frame(self, rows: list[dict[str, Any]], columns: dict[str, str]) -> pd.DataFrame:
        written = [{name: _unicode(value) for name, value in row.items()} for row in rows]
        frame = pd.DataFrame(written, columns=list(columns)).astype(columns)
        frame.attrs = {name: getattr(self.run, name) for name in ("run_id", "status", "reason")}
        return frame

    def _span_row(self, span: Span) -> dict[str, Any]:
        return {
            "id": span.id,
            "parent": span.parent or "",
            "layer": span.layer,
            "name": span.name,
            "host": span.process.host,
            "role": span.process.role,
            "index": span.process.index,
            "pid": span.process.pid,
            "lane": span.lane,
            "start_ns": span.start_ns - self.trace.start_ns,
            "end_ns": span.end_ns - self.trace.start_ns,
            "duration_ns": span.end_ns - span.start_ns,
            "source": span.source,
            "resolution_ns": span.resolution_ns,
            "truncated": span.truncated,
            "attrs": dict(span.attrs),
        }


def _is_step(span: Span) -> bool:
    """Not another collective that is counted, such as what ranks agree on between steps."""
    return span.rendezvous in ("", f"{kinds.STEP_RENDEZVOUS} {span.call}")


def _passed(row: LayerWaits | None, ns: int) -> dict[str, int | None]:
    names = ("on_core_ns", "waiting_ns", "blocked_ns", "unknown_ns")
    if row is None:  # nobody looked, or the layer held nobody up
        return dict.fromkeys(names, None if ns else 0)
    return {name: getattr(row, name) for name in names}


def _host_rows(found: SampledHost) -> Iterator[dict[str, Any]]:
    for sample in found.samples:
        gpus = [gpu for gpu in sample.gpus if gpu]
        yield {
            "at_ns": sample.at_ns,
            "host": found.host,
            "role": "host",
            "index": 0,
            "cpu_ns": sample.cpu_busy_ns,
            "memory_bytes": sample.memory_bytes,
            "disk_read_bytes": sample.disk_read_bytes,
            "disk_written_bytes": sample.disk_written_bytes,
            "loopback_bytes": sample.loopback_bytes,
            "net_received_bytes": sample.net_received_bytes,
            "net_sent_bytes": sample.net_sent_bytes,
            "gpu_busy_percent": sum(busy for busy, _ in gpus) / len(gpus) if gpus else None,
            "gpu_memory_bytes": sum(memory for _, memory in gpus) if gpus else None,
        }


def _process_rows(evidence: Evidence, found: SampledHost) -> Iterator[dict[str, Any]]:
    for process, role, index in resource_use.with_roles(evidence, found):
        for sample in process.samples:
            yield {
                "at_ns": sample.at_ns,
                "host": found.host,
                "role": role,
                "index": index,
                "pid": process.pid,
                "cpu_ns": sample.cpu_ns,
                "memory_bytes": sample.rss_bytes,
                "disk_read_bytes": sample.read_bytes,
                "disk_written_bytes": sample.write_bytes,
            }


def _unicode(value: Any) -> Any:
    """Half of a surrogate pair, escaped: pandas keeps texts as Arrow's where pyarrow is installed, which refuses it."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
