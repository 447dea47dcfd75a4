"""The parts of tasks in Python workers: their place in the trace, their sums, and the check against PySpark's times."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dlobd import spans as kinds
from dlobd.attribution.attribute import attribute
from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import read
from dlobd.timeline.assemble import assemble
from dlobd.timeline.executor import placed_parts
from tests.captured import copy_of, recomputed

MS = 10**6
PLACED = (kinds.READ_FROM_JVM, kinds.SERIALISE_ROWS, kinds.PYSPARK_LOOP, kinds.WRITE_TO_JVM)
TASK, START_NS, LENGTH_NS = 3, 31159138026834, 61275835  # in own-run
PARTS = {"ns": 60 * MS, "read_ns": 20 * MS, "serialise_ns": 9 * MS, "write_ns": 1 * MS, "function_ns": 25 * MS}


def bundle(
    directory: Path, *others: dict[str, Any], how: str = "measured", kind: str = "SQL_SCALAR_PANDAS_UDF"
) -> Path:
    """Copy own-run, with parts of one task in two slices, and with other spans in its worker."""
    path = copy_of("own-run", directory)
    (spans,) = [file for file in path.glob("spans/*/*") if f'"task_attempt":{TASK}}}' in file.read_text()]
    sums = dict(PARTS) if how != "unknown" else {name: ns for name, ns in PARTS.items() if name != "function_ns"}
    half = {name: ns // 2 for name, ns in (sums if how == "measured" else dict(list(sums.items())[:4])).items()}
    attrs = {"task_attempt": TASK, "stage": 0, "evaluation": kind, "how": how, **sums}
    text = spans.read_text().replace(f'{{"task_attempt":{TASK}}}', json.dumps(attrs))
    slices = [{"k": "i", "n": kinds.PYTHON_SLICE, "t": START_NS + at * MS, "a": half} for at in (30, 60)]
    spans.write_text(text + "".join(json.dumps(line) + "\n" for line in (*slices, *others)))
    return path


def placed(path: Path) -> list[tuple[str, int, int]]:
    """Return name, start and length of the placed spans of the trace, in ms after the start of the task."""
    trace = assemble(Evidence(path))
    attribution = attribute(trace)
    assert sum(row.ns for row in attribution.layers) + attribution.unattributed_ns == trace.wall_ns
    found = sorted((span for span in trace.spans if span.kind in PLACED), key=lambda span: span.start_ns)
    return [
        (str(span.kind), (span.start_ns - START_NS) // MS, round((span.end_ns - span.start_ns) / MS, 1))
        for span in found
    ]


def test_a_slice_has_its_sums_one_after_another(tmp_path: Path) -> None:
    read_, serialise, loop, write = map(str, PLACED)
    first = [(read_, 0, 10), (serialise, 10, 4.5), (loop, 14, 2.5), (write, 29, 0.5)]
    assert placed(bundle(tmp_path)) == first + [(name, at + 30, ns) for name, at, ns in first]


@pytest.mark.parametrize("how", ["sampled", "unknown"])
def test_a_loop_that_is_not_measured_stays_user_code(tmp_path: Path, how: str) -> None:
    assert {name for name, _, _ in placed(bundle(tmp_path, how=how))} == {
        str(PLACED[0]),
        str(PLACED[1]),
        str(PLACED[3]),
    }


def test_a_slice_with_the_users_own_span_is_not_divided(tmp_path: Path) -> None:
    own = {"k": "s", "i": 900, "p": 12, "l": kinds.MARKED.layer, "n": "span x", "t": START_NS + 40 * MS, "d": MS}
    assert {at for _, at, _ in placed(bundle(tmp_path, own))} == {0, 10, 14, 29}


def test_ids_are_those_of_no_other_span(tmp_path: Path) -> None:
    path = bundle(tmp_path)
    for process in filter(None, map(read, path.glob("spans/*/*"))):
        ids = [span.id for span in (*process.spans, *placed_parts(process))]
        assert len(ids) == len(set(ids))


@pytest.mark.parametrize(("how", "function_ns"), [("measured", 25 * MS), ("sampled", 25 * MS), ("unknown", None)])
def test_the_sums_of_a_stage(tmp_path: Path, how: str, function_ns: int | None) -> None:
    (work,) = recomputed(Bundle(bundle(tmp_path, how=how)))["python_work"]
    rest = 30 * MS
    assert (work["stage"], work["tasks"], work["function"]) == ("0", 1, how)
    assert (
        work["function_and_loop_ns"] == rest == PARTS["ns"] - work["serialise_ns"] - work["read_ns"] - work["write_ns"]
    )
    assert work["function_ns"] == function_ns
    assert work["loop_ns"] == (None if function_ns is None else rest - function_ns)


@pytest.mark.parametrize(("finish", "verdict"), [("61", "pass"), ("300", "unknown"), ("3000", "fail")])
def test_the_times_of_pyspark(tmp_path: Path, finish: str, verdict: str) -> None:
    path = bundle(tmp_path, kind="NON_UDF")
    for log in path.glob("logs/containers/*/stderr"):
        log.write_text(re.sub(rf"finish = 61( .*TID {TASK}\))", rf"finish = {finish}\1", log.read_text()))
    (check,) = [row for row in recomputed(Bundle(path))["checks"] if row["code"] == "python-times"]
    assert check["verdict"] == verdict
    assert (check["left"], check["right"]) == (60, int(finish))


@pytest.mark.parametrize(("metric", "verdict"), [("60", "pass"), ("3000", "fail")])
def test_the_sql_metric(tmp_path: Path, metric: str, verdict: str) -> None:
    path = bundle(tmp_path)
    log = path / "evidence" / "event-log.jsonl"
    row = {"ID": 1, "Name": "time to execute Python code", "Update": metric, "Internal": True, "Metadata": "sql"}
    lines = log.read_text().splitlines(keepends=True)
    for at, line in enumerate(lines):
        if '"SparkListenerTaskEnd"' in line and (event := json.loads(line))["Task Info"]["Task ID"] == TASK:
            event["Task Info"]["Accumulables"].append(row)
            lines[at] = json.dumps(event) + "\n"
    log.write_text("".join(lines))
    (check,) = [one for one in recomputed(Bundle(path))["checks"] if one["code"] == "python-times"]
    assert check["verdict"] == verdict
