"""The data of the report page: figures of the record, exact sums, unknown values."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import Span
from dlobd.bundle.store import Bundle
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.report.first_screen import first_screen
from dlobd.report.page.data import QUALITIES, Source, document, source
from dlobd.report.page.icicle import icicle
from dlobd.report.page.timeline import MOST_LANES, MOST_NAMES, MOST_PARTS, MOST_ROWS, timeline
from dlobd.report.tables import cell
from dlobd.schema import Process
from dlobd.spans import INSTANTS, SPANS, STEP, WRITE_FILE
from tests import records
from tests.captured import NAMES
from tests.page_traces import DATA, copied, long_run, long_trace, sums
from tests.scalar_attribution import arrange, by_lane
from tests.strategies import trace_of


@pytest.fixture(scope="module", params=NAMES)
def captured(request: pytest.FixtureRequest) -> Source:
    return source(Bundle(DATA / request.param))


def _one(found: Source) -> dict[str, Any]:
    """The facts and the charts of a run."""
    page: dict[str, Any] = document([found])
    return page["runs"][0] | page["charts"]["runs"][0]


def _of(**changes: Any) -> Source:
    record = records.run_record(**changes)
    return Source(records.run(**changes), record, None, None, None, (), "No timeline: lost.")


def test_the_figures_are_those_of_the_record_and_of_the_terminal(captured: Source) -> None:
    page, record = _one(captured), captured.record
    given = {row["layer"]: row for row in record["layers"]}
    parts = {part.layer: part for part in page["parts"]}
    assert {layer for layer, row in given.items() if row["ns"]} <= set(parts) <= {*given, UNATTRIBUTED}
    assert [part.ns for part in page["parts"]] == sorted((part.ns for part in page["parts"]), reverse=True)
    for layer in parts.keys() & given.keys():
        for key in ("ns", "lo_ns", "hi_ns"):
            assert getattr(parts[layer], key) == given[layer][key]
    assert sum(part.ns for part in page["parts"]) == record["wall_ns"]
    assert all(sum(getattr(part, name) for name in QUALITIES.values()) == part.ns for part in page["parts"])
    assert page["screen"] == first_screen(captured.run)
    assert page["record"] == record


def test_the_icicle_tiles_the_wall(captured: Source) -> None:
    nodes = _one(captured)["icicle"]["nodes"]
    assert nodes[0][:3] == [0, 0, captured.run.wall_ns]
    for depth in (1, 2, 3):
        for node in (node for node in nodes if node[0] == depth):
            assert any(up[1] <= node[1] <= node[2] <= up[2] for up in nodes if up[0] == depth - 1)
    for layer in {node[3] for node in nodes if node[3] not in ("", UNATTRIBUTED)}:
        lengths = Counter[int]()
        for depth, start, end, of, _ in nodes:
            lengths[depth] += (end - start) * (of == layer)
        assert lengths[1] == lengths[2]


def test_undrawn_lanes_and_causes_without_spans_are_stated() -> None:
    found = icicle(records.run(), None)
    assert not found["by_span"]
    assert [node[4] for node in found["nodes"] if node[0] == 2][:2] == ["SparkContext", "without a name"]
    assert sum(node[2] - node[1] for node in found["nodes"] if node[0] == 1) == 1_000_000_000
    trace = long_trace(count=600, lanes=60)
    found = timeline(trace, attribute(trace))
    assert len(found["lanes"]) - 1 + found["lanes_left_out"] == len(trace.lanes)
    assert found["lanes_left_out"] == 21


def test_a_wide_and_deep_run_has_a_small_timeline_with_exact_sums() -> None:
    """Many lanes, rows, names and parts: the page draws the lanes of the critical path and counts the rest."""
    ranks = [
        Span(
            f"{rank}-{place}",
            None,
            STEP,
            Process("h", "worker", rank, rank),
            f"rank-{rank}",
            at_ns,
            at_ns + 9,
            call=place,
        )
        for rank in range(80)
        for place, at_ns in enumerate(range(0, 20_000, 100))
    ]
    files = [
        Span(
            f"f{place}",
            None,
            WRITE_FILE,
            Process("h", "driver", 0, 1),
            "driver",
            at_ns,
            at_ns + 5,
            f"f{place}",
        )
        for place, at_ns in enumerate(range(0, 20_000, 10))
    ]
    deep = [
        Span(f"d{depth}", None, STEP, Process("h", "chief", 0, 2), "application", depth, 20_000 - depth)
        for depth in range(60)
    ]
    client = Span(
        "c", None, SPANS["client", "wait for spark-submit"], Process("h", "client", 0, 3), "client", 0, 20_000
    )
    waiting = dataclasses.replace(client, waits_for=("rank-79",))
    trace = trace_of(0, 20_000, (waiting, *files, *deep, *ranks))
    found: dict[str, Any] = timeline(trace, attribute(trace))
    lanes = [lane["name"] for lane in found["lanes"]]
    assert len(lanes) == 1 + MOST_LANES
    assert {"client", "driver", "application", "rank-79", "rank-0"} <= {*lanes}
    assert found["lanes_left_out"] == 83 - MOST_LANES
    assert max(lane["rows"] for lane in found["lanes"]) == MOST_ROWS
    assert found["too_deep"] == 60 - MOST_ROWS
    assert len(found["names"]) <= MOST_NAMES + 20
    assert sum((len(row) - 7) // 3 for row in found["slices"]) <= MOST_PARTS
    total = sum(ns for (lane, _), ns in sums(found).items() if lane == "driver")
    assert total == sum(span.end_ns - span.start_ns for span in files)
    assert sums(found)["driver", "other names"] == 5 * (len(files) - MOST_NAMES + 2)
    page = json.dumps(found, separators=(",", ":"))
    assert len(page) < 500_000


def test_a_large_record_is_left_out_of_the_page() -> None:
    small, large = _of(), _of(warnings=["w" * 100] * 3_000)
    assert _one(small)["record"] == small.record
    assert _one(small)["recorded"]
    assert _one(large)["record"] is None
    assert not _one(large)["recorded"]


def test_each_event_has_its_consequence(captured: Source) -> None:
    page = _one(captured)
    for event in (*page["startup"], *page["teardown"]):
        assert event[7] == INSTANTS[event[0]].unlocks
        assert event[8] in (*LAYERS, UNATTRIBUTED, "")
        assert event[1] <= event[2]


def test_the_timeline_has_every_span_and_its_length(captured: Source) -> None:
    assert captured.trace
    assert captured.attribution
    found = timeline(captured.trace, captured.attribution)
    assert found["merged_below_ns"] == 0
    _assert_exact(captured.trace, found)


@pytest.mark.slow
def test_a_hundred_thousand_spans_are_aggregated_and_their_sums_kept() -> None:
    trace, attribution = long_run()
    found = timeline(trace, attribution)
    assert len(found["slices"]) <= MOST_PARTS
    assert found["merged_below_ns"] > 0
    assert found["spans"] == len(trace.spans)
    _assert_exact(trace, found)
    counts = Counter[str]()
    for row in found["slices"]:
        for place in range(7, len(row), 3):
            counts[found["names"][row[place]].partition("\n")[2]] += row[place + 1] * (row[0] > 0)
    assert counts == Counter(span.name for span in trace.spans)


def _assert_exact(trace: Any, found: dict[str, Any]) -> None:
    expected = Counter[tuple[str, str]]()
    for lane, spans in by_lane(trace.spans).items():
        for nested in arrange(spans, trace.start_ns, trace.end_ns).nested:
            expected[lane, nested.span.name] += nested.end_ns - nested.start_ns
    own = Counter({key: ns for key, ns in sums(found).items() if key[0] != "wall time"})
    assert own == expected
    assert sum(ns for key, ns in sums(found).items() if key[0] == "wall time") == trace.wall_ns


def test_parts_of_steps_tile_the_ranks_time(captured: Source) -> None:
    for rank in (_one(captured)["steps"] or {"ranks": []})["ranks"]:
        bins = rank["bins"]
        assert sum(bins[0][7:]) == bins[0][3] - bins[0][2]
        assert sum(sum(one[7:]) for one in bins) == bins[-1][3] - bins[0][2]
        assert sum(one[1] - one[0] + 1 for one in bins) == rank["steps"]
        assert all(low <= middle <= high for _, _, _, _, low, middle, high, *_ in bins)


def test_missing_parts_of_a_run_are_none_and_never_zero() -> None:
    page = _one(_of())
    assert page["tables"]["ranks"].rows[0][5] is None
    assert page["usage"] == []
    assert page["usage_lines"] == ["Resource use was not sampled: unknown."]
    assert page["recording"].endswith("unknown")
    purposes = next(table for table in page["tables"]["where"] if table.title == "HDFS by purpose")
    assert purposes.rows[0][3:6] == (None, 1_000, 2_000)
    page = _one(_of(status="failed", reason="no Java", window=None, wall_ns=None, layers=[], unattributed_ns=None))
    assert page["screen"].failure.reason == "no Java"
    assert page["sum"].startswith("No breakdown")
    assert page["icicle"]["nodes"] == page["parts"] == []


def test_no_table_is_in_two_sections(captured: Source) -> None:
    found = _one(captured)["tables"].values()
    titles = [table.title for some in found for table in (some if isinstance(some, tuple) else (some,))]
    assert len(titles) == len(set(titles))


def test_bundles_with_damaged_or_missing_evidence_have_a_page(tmp_path: Path) -> None:
    bundle = copied("quick-run", tmp_path)
    (bundle.path / "evidence" / "window.json").unlink()
    page = _one(source(bundle))
    assert page["timeline"] is None
    assert page["no_timeline"].startswith("No timeline: ")
    assert "evidence/window.json: missing" in page["changed"]
    assert page["wall_ns"] == page["record"]["wall_ns"]
    bundle = copied("quick-run", tmp_path / "b")
    (bundle.path / "hashes").unlink()
    assert any("has not ended, or was killed" in line for line in _one(source(bundle))["changed"])


def test_common_settings_of_runs_are_listed_once() -> None:
    first = _of()
    other = copy.deepcopy(first.record)
    other["configuration"]["batch_size"] = 7
    second = _of(configuration=other["configuration"], run_id="20260102T030405Z-0a1c")
    found = document([first, second])
    assert "batch_size" not in found["common"]
    assert [run["differs"] for run in found["runs"]] == [{"batch_size": 100}, {"batch_size": 7}]
    assert [run["label"] for run in found["runs"]] == ["A", "B"]
    (pair,) = found["comparison"]["pairs"]
    assert pair["heading"].startswith("batch_size=7 against batch_size=100: 1 run")
    seconds = f"{first.record['wall_ns'] / 1e9:.3f}"
    assert [cell(value, "s") for value in pair["tables"][0].rows[0][1:4]] == [seconds, seconds, "+0.000"]
    assert document([first, _of(run_id=second.run.run_id)])["comparison"]["refused"].startswith("All runs have")
    assert document([first])["comparison"] is None


def test_differences_of_runs_are_listed_by_size() -> None:
    sources = [source(Bundle(DATA / name)) for name in ("native-run", "quick-run")]
    found = document(sources)["comparison"]
    table = found["differences"]
    assert [column.name for column in table.columns] == ["layer", "A, s", "B, s", "B - A, s"]
    walls = [one.run.wall_ns / 1e9 for one in sources]
    assert table.rows[0] == ["wall time", f"{walls[0]:.1f}", f"{walls[1]:.1f}", f"{walls[1] - walls[0]:+.1f}"]
    sizes = [abs(float(row[3])) for row in table.rows[1:]]
    assert sizes == sorted(sizes, reverse=True)
    (spark,) = (row for row in table.rows if row[0] == "Spark")
    assert spark[1] == "0.0"
    assert found["heading"].startswith(f"B took {walls[1] - walls[0]:.1f} s longer than A")


def test_the_same_run_given_twice_is_reported() -> None:
    first, changed = _of(), _of(reason="edited")
    for other in (first, changed):
        found = document([first, other])
        assert len(found["runs"]) == 1
        assert found["repeated"] == [f"Run {first.run.run_id} was given more than once; it is shown once."]
