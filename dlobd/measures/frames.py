"""Run bundles as pandas data frames, for notebooks and for the scripts in `analysis/`.

Times are int64 nanoseconds. `start_ns` and `end_ns` count from the start of the run's window, so that frames of several
runs are comparable.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dlobd.attribution.trace import Trace
from dlobd.bundle.store import Bundle, find
from dlobd.columns import NONE, Codes, Ints, Numbers, ints
from dlobd.errors import BundleError
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.resources import SampledHost
from dlobd.experiment.user_config import runs_dir
from dlobd.layers import UNATTRIBUTED, title
from dlobd.measures import resource_use
from dlobd.record.resources import LayerWaits
from dlobd.record.run import Run

Row = dict[str, object]


def _columns(text: str) -> dict[str, str]:
    """Parse column names and types from lines such as `int64: start_ns end_ns`."""
    lines = (line.strip().partition(": ") for line in text.strip().splitlines())
    return {name: kind for kind, _, names in lines for name in names.split()}


SPANS = _columns("""
    str: id parent layer name host role
    int64: index pid
    str: lane
    int64: start_ns end_ns duration_ns
    str: source
    int64: resolution_ns
    bool: truncated
    object: attrs
""")
"""Columns of `RunBundle.spans`. `attrs` contains a dict, which rows may share; `parent` is empty for the outermost
spans of a lane."""

PART = 1 << 17
"""Rows of a part of the spans."""

ATTRIBUTION = _columns("""
    str: layer group
    int64: ns
    float64: percent
    int64: measured_ns between_marks_ns named_wait_ns unexplained_ns lo_ns hi_ns
    Int64: on_core_ns waiting_ns blocked_ns unknown_ns
""")
"""Columns of `RunBundle.attribution`. `percent` is the share of the wall time.

`on_core_ns` to `unknown_ns` are the states of the layer's threads and sum to `ns`; they are missing without counters of
threads. `measured_ns` to `unexplained_ns` are qualities of the evidence and sum to `ns`, except for `unattributed`,
where they are 0."""

STEPS = _columns("""
    str: role
    int64: index step start_ns end_ns duration_ns
""")
"""Columns of `RunBundle.steps`. `step` counts from 0 in every rank."""

EPOCHS = _columns("""
    int64: epoch start_ns end_ns duration_ns
    float64: loss
    Int64: test_samples
    float64: test_accuracy
    Int64: evaluation_ns from_submit_ns from_first_touch_ns
""")
"""Columns of `RunBundle.epochs`. `epoch` counts from 1. Its accuracy was known `from_submit_ns` after the submission,
and `from_first_touch_ns` after the first touch of the data."""

RESOURCES = _columns("""
    int64: at_ns
    str: host role
    int64: index
    Int64: pid cpu_ns
    int64: memory_bytes
    Int64: disk_read_bytes disk_written_bytes loopback_bytes net_received_bytes net_sent_bytes
    Float64: gpu_busy_percent
    Int64: gpu_memory_bytes
""")
"""Columns of `RunBundle.resources`. A row of the role `host` is the whole machine, without a PID.

`memory_bytes` is memory in use, or a process's resident set. Counters are totals since the start, except for GPUs."""


FRAMES = ("attribution()", "spans()", "steps()", "epochs()", "resources()")
"""Methods of `RunBundle` that return a data frame."""


class RunBundle:
    """A run on disk, by its path, its ID or `latest` in `out`. Raises BundleError if it is missing, damaged or
    newer."""

    def __init__(self, run: str | Path, out: str | Path | None = None) -> None:
        directory = runs_dir() if out is None else Path(out)
        try:
            self._bundle: Bundle = find(run, directory)
        except BundleError as error:
            raise BundleError(error.what, "dlobd.load(RUN, out=DIRECTORY)") from None
        self.run: Run = self._bundle.read()

    def __repr__(self) -> str:
        return f"<{self._title}; data frames: {', '.join(FRAMES)}>"

    def _repr_html_(self) -> str:
        """Return title and layers, for notebooks."""
        frame = self.attribution().query("ns >= 50_000_000")  # a tenth of a second, rounded
        layers = pd.DataFrame({"layer": frame["layer"].map(title), "seconds": frame["ns"] / 1e9, "%": frame["percent"]})
        return f"<p>{escape(self._title)}</p>{layers.round(1).to_html(index=False, border=0)}"

    @property
    def _title(self) -> str:
        wall = "wall time unknown" if self.run.wall_ns is None else f"{self.run.wall_ns / 1e9:.1f} s"
        return f"run {self.run.run_id} of {self.run.experiment}: {self.run.status}, {wall}"

    @property
    def path(self) -> Path:
        """The directory of the bundle."""
        return self._bundle.path

    @cached_property
    def trace(self) -> Trace:
        """All spans on one time axis, computed from the bundle's evidence."""
        from dlobd.timeline.assemble import read

        return read(self.path)[0]

    def spans(self) -> pd.DataFrame:
        """Return a row per span of any process, with the columns `SPANS`, in the order of the start."""
        attributes = np.array([*self.trace.spans.attributes, None], object)[:-1]
        rows = self._order
        return self._frame(self._span_columns(rows) | {"attrs": attributes[self.trace.spans.attrs[rows]]}, SPANS)

    def span_parts(self) -> Iterator[pd.DataFrame]:
        """Yield the rows of `spans` in parts of `PART` rows, for files: repeated texts are categories, attributes are
        JSON text."""
        attrs = [json.dumps(one, default=str) for one in self.trace.spans.attributes]
        kinds = {name: "category" if kind in ("str", "object") else kind for name, kind in SPANS.items()}
        kinds |= {"id": "object", "parent": "object"}
        order = self._order
        for rows in np.split(order, range(PART, len(order), PART)):
            yield self._frame(self._span_columns(rows) | {"attrs": _texts(attrs, self.trace.spans.attrs[rows])}, kinds)

    @property
    def _order(self) -> Ints:
        spans = self.trace.spans
        return np.lexsort((-spans.end_ns, spans.start_ns))

    def attribution(self) -> pd.DataFrame:
        """Return a row per layer and for `unattributed`, with the columns `ATTRIBUTION`."""
        wall_ns = self.run.wall_ns
        if not wall_ns:
            return self._frame([], ATTRIBUTION)
        rest: Row = {
            **dict.fromkeys(ATTRIBUTION, 0),
            **dict.fromkeys(("ns", "lo_ns", "hi_ns"), self.run.unattributed_ns or 0),
            "layer": UNATTRIBUTED,
            "group": "-",
        }
        layers = [asdict(layer) for layer in self.run.layers]
        passed = {row.layer: row for row in self.run.core_waits.layers} if self.run.core_waits else {}
        rows = [
            {**row, "percent": 100 * row["ns"] / wall_ns, **_passed(passed.get(row["layer"]), row["ns"])}
            for row in (*layers, rest)
        ]
        return self._frame(rows, ATTRIBUTION)

    def steps(self) -> pd.DataFrame:
        """Return a row per training step of a rank, with the columns `STEPS`, by role, index and step."""
        rows = np.flatnonzero(self.trace.spans.is_step)
        frame = self._frame(self._span_columns(rows) | {"step": self.trace.spans.call[rows]}, STEPS)
        return frame.sort_values(["role", "index", "step"], ignore_index=True)

    def epochs(self) -> pd.DataFrame:
        """Return a row per epoch, with the columns `EPOCHS`; empty if the run recorded no epoch."""
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
        """Return a row per sample of dlobd's machine, and of each process on it, with the columns `RESOURCES`."""
        evidence, window = Evidence(self.path), self.run.window
        found = evidence.resources
        if found is None or window is None:
            return self._frame([], RESOURCES)
        rows = [*_host_rows(found), *_process_rows(evidence, found)]
        frame = self._frame(rows, RESOURCES)
        frame["at_ns"] -= window.start_ns
        return frame.sort_values(["at_ns", "role", "index", "pid"], ignore_index=True)

    def _frame(self, data: list[Row] | dict[str, Any], columns: dict[str, str]) -> pd.DataFrame:
        if isinstance(data, list):
            data = [{k: _encoded(v) if isinstance(v, str) else v for k, v in row.items()} for row in data]
        frame = pd.DataFrame(data, columns=list(columns)).astype(columns)
        frame.attrs = {name: getattr(self.run, name) for name in ("run_id", "status", "reason")}
        return frame

    def _span_columns(self, rows: Ints) -> dict[str, Any]:
        """Return the columns of spans, without their attributes."""
        spans = self.trace.spans
        origins, kinds, start_ns, end_ns = spans.origins, spans.kinds, spans.start_ns[rows], spans.end_ns[rows]
        kind, origin, outer = spans.kind[rows], spans.origin[rows], spans.parent[rows]
        return {
            "id": self._ids(rows),
            "parent": np.where(outer == NONE, "", self._ids(outer)),
            "layer": _texts((kind.layer for kind, _ in kinds), kind),
            "name": _texts((kind.text(detail) for kind, detail in kinds), kind),
            "lane": _texts((origin.lane for origin in origins), origin),
            "source": _texts((origin.source for origin in origins), origin),
            "host": _texts((origin.process.host for origin in origins), origin),
            "role": _texts((origin.process.role for origin in origins), origin),
            "index": ints([origin.process.index for origin in origins])[origin],
            "pid": ints([origin.process.pid for origin in origins])[origin],
            "resolution_ns": spans.resolution_ns[rows],
            "truncated": spans.truncated[rows],
            "start_ns": start_ns - self.trace.start_ns,
            "end_ns": end_ns - self.trace.start_ns,
            "duration_ns": end_ns - start_ns,
        }

    def _ids(self, rows: Ints) -> Any:
        """Return the IDs of spans; any text for NONE."""
        spans = self.trace.spans
        before = np.array([_encoded(origin.id) for origin in spans.origins], object)[spans.origin[rows]]
        numbers = spans.number[rows]
        return before + np.where(numbers == NONE, "", numbers.astype(np.dtypes.StringDType()).astype(object))


def _texts(values: Iterable[str], codes: Codes) -> pd.Categorical:
    """Return a column of repeated texts."""
    texts = Numbers[str]()
    places = np.array([texts[_encoded(value)] for value in values], np.int32)
    return pd.Categorical.from_codes(places[codes], pd.Index(list(texts), dtype="object"))


def _encoded(text: str) -> str:
    # pandas with pyarrow stores texts in Arrow, which rejects half of a surrogate pair
    return text.encode(errors="backslashreplace").decode()


def _passed(row: LayerWaits | None, ns: int) -> dict[str, int | None]:
    names = ("on_core_ns", "waiting_ns", "blocked_ns", "unknown_ns")
    if row is None:  # no counters, or no wall time in the layer
        return dict.fromkeys(names, None if ns else 0)
    return {name: getattr(row, name) for name in names}


def _host_rows(found: SampledHost) -> Iterator[Row]:
    for sample in found.samples:
        gpus = [gpu for gpu in sample.gpus if gpu]
        yield {
            **{name: getattr(sample, name) for name in ("at_ns", "memory_bytes", *resource_use.IO)},
            "host": found.host,
            "role": "host",
            "index": 0,
            "cpu_ns": sample.cpu_busy_ns,
            "gpu_busy_percent": sum(busy for busy, _ in gpus) / len(gpus) if gpus else None,
            "gpu_memory_bytes": sum(memory for _, memory in gpus) if gpus else None,
        }


def _process_rows(evidence: Evidence, found: SampledHost) -> Iterator[Row]:
    for process, role, index in resource_use.with_roles(evidence, found):
        who = {"host": found.host, "role": role, "index": index, "pid": process.pid}
        for sample in process.samples:
            use = {"at_ns": sample.at_ns, "cpu_ns": sample.cpu_ns, "memory_bytes": sample.rss_bytes}
            yield {**who, **use, "disk_read_bytes": sample.read_bytes, "disk_written_bytes": sample.write_bytes}
