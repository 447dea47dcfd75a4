"""Span files may end anywhere, because their writer may have been killed anywhere."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from dlobd import spans as kinds
from dlobd.bundle import reading
from dlobd.evidence import recorder
from dlobd.timeline.builder import LaneBuilder
from dlobd.tracing.clock_offset import Exchange
from dlobd.tracing.recorder import Cost
from tests.recorded import read_all

PROCESS = {"k": "process", "host": "h", "role": "worker", "index": 1, "pid": 7, "start_ns": 90, "opened_ns": 100}
PROCESS |= {"forked": True, "domain": "h/b/t", "schema": 1}
ANCHOR = {"k": "anchor", "monotonic_ns": 101, "wall_ns": 1_000_101, "error_ns": 2}
OUTER = {"k": "b", "l": "tensorflow", "n": "trainer", "i": 1, "p": 0, "t": 110}
INNER = {"k": "b", "l": "feed", "n": "get", "i": 2, "p": 1, "t": 120, "w": {"waits_for": ["@feeder"]}, "a": {"x": 1}}
INNER_END = {"k": "e", "i": 2, "t": 130, "a": {"bytes": 5}}
INSTANT = {"k": "i", "n": "first batch", "t": 140}
OUTER_END = {"k": "e", "i": 1, "t": 150}
PAIR = {"k": "x", "domain_b": "d/b/t", "sent_a_ns": 141, "received_b_ns": 5, "sent_b_ns": 6, "received_a_ns": 145}
ALL = (PROCESS, ANCHOR, OUTER, INNER, INNER_END, INSTANT, OUTER_END)


def written(directory: Path, *lines: dict[str, Any], cut: int = 0, name: str = "spans-7-100.jsonl") -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(text[: len(text) - cut])
    return path


def test_a_whole_file(tmp_path: Path) -> None:
    process = recorder.read(written(tmp_path, *ALL))
    outer, inner = process.spans
    assert (outer.start_ns, outer.end_ns, outer.truncated, outer.parent) == (110, 150, False, 0)
    assert (inner.start_ns, inner.end_ns, inner.truncated, inner.parent) == (120, 130, False, 1)
    assert (inner.wait, inner.attrs) == ({"waits_for": ("@feeder",)}, {"x": 1, "bytes": 5})
    assert (process.last_ns, process.bad_lines, process.forked) == (150, 0, True)
    assert process.anchors[0].domain == "h/b/t"
    assert [*process.named("get")] == [inner]
    assert process.instant("last batch") is None


def test_every_cut_of_a_file_is_readable(tmp_path: Path) -> None:
    text = [json.dumps(line) + "\n" for line in ALL]
    ends = [len("".join(text[: n + 1])) - 1 for n in range(len(text))]  # a line is whole without its line break
    for kept in range(ends[-1] + 2):
        whole = sum(end <= kept for end in ends)
        process = recorder.read(written(tmp_path, *ALL, cut=ends[-1] + 1 - kept))
        if not whole:
            assert process is None
            continue
        assert process.bad_lines <= 1
        assert len(process.spans) == min(max(whole - 2, 0), 2)
        for span in process.spans:
            assert span.truncated == (whole < {"get": 5, "trainer": 7}[span.name])
            assert span.end_ns == process.last_ns if span.truncated else span.end_ns <= process.last_ns


def test_unreadable_lines_and_unknown_kinds_harm_only_themselves(tmp_path: Path) -> None:
    process = recorder.read(written(tmp_path, PROCESS, {"k": "counter", "v": 3}, {"k": "b", "i": 9}, OUTER, OUTER_END))
    assert [span.name for span in process.spans] == ["trainer"]
    assert process.bad_lines == 1
    path = written(tmp_path, PROCESS, OUTER)
    path.write_text(path.read_text() + "null\n5\n{}\n\x00\x00\n" + json.dumps(OUTER_END) + "\n")
    process = recorder.read(path)
    assert process.bad_lines == 4
    assert [span.truncated for span in process.spans] == [False]
    process = recorder.read(written(tmp_path, PROCESS, OUTER_END))
    assert not process.spans
    assert process.last_ns == 150


@pytest.mark.parametrize(
    ("kind", "attribute"), [(kind, name) for kind in kinds.INSTANTS.values() for name in sorted(kind.attributes)]
)
def test_an_instant_without_an_attribute_of_its_kind_is_damaged(kind: str, attribute: str, tmp_path: Path) -> None:
    texts = {"package", "by", "cause", "level", "how", "address", "application_id"}
    attributes = {name: "x" if name in texts else 1 for name in kinds.INSTANTS[kind].attributes}
    whole = {"k": "i", "n": kind, "t": 140, "a": attributes}
    missing = whole | {"a": {name: value for name, value in attributes.items() if name != attribute}}
    process = recorder.read(written(tmp_path, PROCESS, whole, missing))
    assert [instant.attrs for instant in process.instants] == [attributes]
    assert process.bad_lines == 1


def test_a_span_in_one_line(tmp_path: Path) -> None:
    whole = INNER | {"k": "s", "d": 10, "th": "reader"}
    process = recorder.read(written(tmp_path, PROCESS, OUTER, whole, INNER_END))
    outer, inner = process.spans
    assert (inner.start_ns, inner.end_ns, inner.truncated, inner.parent, inner.thread) == (120, 130, False, 1, "reader")
    assert (inner.wait, inner.attrs) == ({"waits_for": ("@feeder",)}, {"x": 1})
    assert (outer.truncated, outer.end_ns, process.last_ns, process.lines) == (True, 130, 130, 4)


def test_the_last_word_about_the_cost_holds(tmp_path: Path) -> None:
    first = {"k": "cost", **dataclasses.asdict(Cost(1, 2, 3, 4, 5, 6, 7, 8))}
    process = recorder.read(written(tmp_path, PROCESS, first, OUTER, first | {"spans": 2, "later": 9}))
    assert process.cost == Cost(2, 2, 3, 4, 5, 6, 7, 8)
    assert (process.bad_lines, process.lines) == (0, 4)
    without = recorder.read(written(tmp_path, *ALL))
    assert without.cost is None


def test_damaged_lines_are_counted_in_any_number_and_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in several blocks, and before and after the last line of the cost. A file of garbage needs little memory."""
    span = {"k": "s", "l": "feed", "n": "get", "p": 0, "t": 120, "d": 5}
    cost = {"k": "cost", **dataclasses.asdict(Cost(1, 2, 3, 4, 5, 6, 0, 0))}
    spans = [span | {"i": number} for number in range(1, 9)]
    bad = ["", "{", "garbage \0", '{"k":"s","i":1}', json.dumps(spans[0] | {"i": 99, "l": "no layer"}), "[]", "7"]
    good = [json.dumps(line) for line in (PROCESS, *spans[:4], cost, *spans[4:])]
    path = tmp_path / "spans-7-100.jsonl"
    path.write_text("".join(f"{line}\n" + "".join(f"{one}\n" for one in bad) for line in good))
    for block in (400, 4 << 20):
        monkeypatch.setattr(reading, "BLOCK_BYTES", block)
        process = recorder.read(path)
        assert process
        assert len(process.spans) == len(spans)
        assert (process.lines, process.bad_lines) == (len(good), len(good) * len(bad))
        assert process.cost_at == good.index(json.dumps(cost))


def test_all_processes_in_the_order_in_which_they_opened(tmp_path: Path) -> None:
    written(tmp_path, PROCESS | {"opened_ns": 300}, name="container_2/spans-7-300.jsonl")
    written(tmp_path, PROCESS | {"opened_ns": 200}, name="container_3/spans-7-200.jsonl")
    written(tmp_path, name="container_3/spans-8-250.jsonl")
    (tmp_path / "container_3" / "stderr").write_text("x")
    found = read_all(tmp_path)
    assert [process.opened_ns for process in found] == [200, 300]
    assert found[0].path.parent.name == "container_3"
    assert read_all(tmp_path / "none") == []


def test_a_message_pair_that_cannot_be_is_damage(tmp_path: Path) -> None:
    process = recorder.read(
        written(
            tmp_path,
            PROCESS,
            PAIR | {"received_a_ns": 140},
            PAIR | {"sent_b_ns": 4},
            {name: value for name, value in PAIR.items() if name != "sent_b_ns"},
            PAIR,
        )
    )
    assert process.exchanges == [("d/b/t", Exchange(141, 5, 6, 145))]
    assert (process.bad_lines, process.last_ns) == (3, 145)


def test_a_collective_has_a_kind_and_a_number(tmp_path: Path) -> None:
    waits = [{"rendezvous": "step", "call": 7}, {"rendezvous": "join ranks"}, {"call": 3}, {}]
    lines = [
        {"k": "s", "l": "tensorflow", "n": "step", "i": n, "p": 0, "t": n, "d": 1, "w": w} for n, w in enumerate(waits)
    ]
    process = recorder.read(written(tmp_path, PROCESS, *lines))
    found = [(s.rendezvous, s.call, s.wait) for s in process.spans]
    assert found == [("step", 7, {}), ("join ranks", None, {}), ("", 3, {}), ("", None, {})]
    assert [s.id for s in process.steps()] == [0, 2]
    lane = LaneBuilder("rank-0", process.process)
    lane.add_recorded(process)
    assert [(s.rendezvous, s.call) for s in lane.spans] == [("step 7", 7), ("join ranks", None), ("", 3), ("", None)]
