"""The recorder and the registry of span kinds: everything that was written comes back."""

from __future__ import annotations

import copy
import json
import os
import pickle
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.errors import BundleError
from dlobd.evidence.recorded_spans import RecordedSpan, RecordedSpans
from dlobd.evidence.recorder import RecordedProcess
from dlobd.schema import Process
from dlobd.timeline.builder import LaneBuilder
from dlobd.tracing.recorder import MOST_QUEUED, Recorder
from tests.fake_clock import FakeClock
from tests.recorded import read_all
from tests.waiting import until

# a tree of spans: layer, name, attributes, children
TREES = st.recursive(
    st.tuples(
        st.sampled_from(["hdfs", "spark"]),
        st.text(max_size=8),
        st.dictionaries(st.just("bytes"), st.integers(0, 2**63 - 1)),
    ),
    lambda inner: st.tuples(st.just("feed"), st.text(max_size=8), st.just({"n": 1}), st.lists(inner, max_size=4)),
    max_leaves=12,
)


def only(directory: Path) -> RecordedProcess:
    (process,) = read_all(directory)
    return process


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@given(st.lists(TREES, max_size=5))
@settings(deadline=None, max_examples=50)
def test_nested_spans_come_back_as_written(tmp_path_factory: pytest.TempPathFactory, forest: list[Any]) -> None:
    directory = tmp_path_factory.mktemp("spans")
    own = Recorder(directory, "driver", now=FakeClock(1_000, 10), threaded=False)
    expected: list[tuple[str, str, dict[str, Any], int]] = []

    def walk(tree: Any, parent: int) -> None:
        layer, name, attrs, *children = tree
        with own.span(kinds.SpanKind(name, layer), None, **attrs):
            expected.append((layer, name, attrs, parent))
            here = len(expected)
            for child in children[0] if children else ():
                walk(child, here)

    for tree in forest:
        walk(tree, 0)
    own.close()
    spans = [span for process in read_all(directory) for span in process.spans]
    assert [(s.layer, s.name, s.attrs, s.parent) for s in spans] == expected
    assert not any(span.truncated or span.thread for span in spans)
    by_id = {span.id: span for span in spans}
    assert len(by_id) == len(spans)
    for span in spans:
        assert span.start_ns < span.end_ns
        if span.parent:
            around = by_id[span.parent]
            assert around.start_ns < span.start_ns < span.end_ns < around.end_ns
    if spans:
        # the clock moves by 10 at each reading, and only begins and ends read it after the file was named
        assert sorted(t for s in spans for t in (s.start_ns, s.end_ns)) == [
            1_010 + 10 * k for k in range(2 * len(spans))
        ]


def test_a_wait_an_instant_and_a_late_attribute_come_back(tmp_path: Path) -> None:
    own = Recorder(tmp_path, "worker", 3, threaded=False)
    wait = {"waits_for": ["@trainers"], "cause": "poll", "cause_period_ns": 5}
    with suppress(ZeroDivisionError), own.span(kinds.PUT, wait, block=1) as span:
        span.note(bytes=7)
        own.instant(kinds.FEED_EXHAUSTED, blocks=2, join_poll_ns=0)
        raise ZeroDivisionError
    own.close()
    process = only(tmp_path)
    (found,) = process.spans
    assert found.wait == {**wait, "waits_for": ("@trainers",)}
    assert found.attrs == {"block": 1, "bytes": 7, "error": "ZeroDivisionError"}
    instant = process.instant("feed exhausted")
    assert instant.attrs == {"blocks": 2, "join_poll_ns": 0}
    assert found.start_ns <= instant.at_ns <= found.end_ns
    assert (process.process.role, process.process.index, process.process.pid) == ("worker", 3, os.getpid())
    assert len(process.anchors) == 2


def test_threads_have_stacks_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlobd.tracing.recorder.FLUSH_S", 0.001)
    own = Recorder(tmp_path, "worker")
    each = 300

    def work() -> None:
        for _ in range(each):
            with own.span(kinds.SpanKind("outer", "tensorflow")), own.span(kinds.SpanKind("inner", "hdfs")):
                pass

    threads = [threading.Thread(target=work, name=f"reader-{i}") for i in range(4)]
    with own.span(kinds.SpanKind("main", "tensorflow")):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    own.close()
    process = only(tmp_path)
    by_id = {span.id: span for span in process.spans}
    assert len(by_id) == len(process.spans) == 1 + 2 * each * len(threads)
    assert not any(span.truncated for span in process.spans)
    for span in process.spans:
        if span.name == "inner":
            assert by_id[span.parent].name == "outer"
            assert by_id[span.parent].thread == span.thread != ""
        else:
            assert span.parent == 0
    assert {span.thread for span in process.spans} == {""} | {thread.name for thread in threads}


@contextmanager
def flushing(own: Recorder) -> Iterator[None]:
    """Flush the recorder in another thread without a pause, with threads that switch as often as possible."""
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            own.flush()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        done.set()
        writer.join()
        own.close()


def test_nothing_is_lost_between_threads_and_the_writer(tmp_path: Path) -> None:
    own = Recorder(tmp_path, "worker", threaded=False)
    with flushing(own):
        for k in range(5_000):
            own.instant(kinds.InstantKind("k"), k=k)
        with own.span(kinds.TRAINER):
            for k in range(2_000):
                with own.span(kinds.STEP) as span:
                    if k % 50 == 0:
                        time.sleep(0.001)  # it is written while it is open
                    span.note(k=k)
    assert [instant.attrs["k"] for instant in only(tmp_path).instants] == list(range(5_000))
    steps = only(tmp_path).named("step")
    assert [span.attrs for span in steps] == [{"k": k} for k in range(2_000)]
    assert not any(span.truncated for span in steps)
    (path,) = tmp_path.glob("spans-*.jsonl")
    assert {"b", "s"} <= {line["k"] for line in lines(path) if line.get("n") == "step"}


def test_a_span_that_is_over_is_one_line_and_one_that_is_open_two(tmp_path: Path) -> None:
    own = Recorder(tmp_path, "worker", threaded=False)
    with own.span(kinds.TRAINER, None, k=1) as trainer:
        with own.span(kinds.GET) as get:
            get.note(bytes=7)
        own.flush()
        trainer.note(late=2)
        with own.span(kinds.STEP):
            pass
    own.close()
    (path,) = tmp_path.glob("spans-*.jsonl")
    written = [(line["k"], line.get("n")) for line in lines(path) if line["k"] in ("s", "b", "e")]
    assert written == [("b", "trainer"), ("s", "get"), ("s", "step"), ("e", None)]
    outer, inner, step = only(tmp_path).spans
    assert (outer.attrs, inner.attrs, inner.wait) == ({"k": 1, "late": 2}, {"bytes": 7}, {"waits_for": ("@feeder",)})
    assert [span.truncated for span in (outer, inner, step)] == [False, False, False]
    assert outer.start_ns < inner.start_ns < inner.end_ns < step.start_ns < step.end_ns < outer.end_ns


def test_recording_costs_are_those_of_the_file(tmp_path: Path) -> None:
    own = Recorder(tmp_path, "worker", threaded=False)
    with own.span(kinds.TRAINER):
        for k in range(50):
            with own.span(kinds.STEP):
                own.instant(kinds.InstantKind("k"), k=k)
            own.past(kinds.SpanKind("call", "spark"), 1, 2)
            own.left_out()
            if k % 10 == 0:
                own.flush(last=True)
    own.close()
    (path,) = tmp_path.glob("spans-*.jsonl")
    text, before_bytes, before_lines, begun, found = path.read_bytes(), 0, 0, 0, []
    for raw in text.splitlines(keepends=True):
        line = json.loads(raw)
        if line["k"] == "cost":
            assert (line["bytes"], line["lines"], line["spans"]) == (before_bytes, before_lines, begun)
            found.append(line)
        begun += line["k"] in ("s", "b")
        before_bytes += len(raw)
        before_lines += 1
    assert len(found) >= 6
    assert json.loads(text.splitlines()[-1]) == found[-1]
    assert (found[-1]["spans"], found[-1]["left_out"], found[-1]["lost_lines"]) == (101, 50, 0)
    for name in ("wall_ns", "cpu_ns", "flushes"):
        assert all(later[name] > one[name] for one, later in pairwise(found)), name
    process = only(tmp_path)
    assert process.cost == tracing.Cost(**{name: value for name, value in found[-1].items() if name != "k"})
    assert process.lines == before_lines


def test_spans_inside_a_long_span_are_written_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread writes without being asked, so that a long training can be looked at while it runs."""
    monkeypatch.setattr("dlobd.tracing.recorder.FLUSH_S", 0.01)
    own = Recorder(tmp_path, "worker")
    with own.span(kinds.TRAINER):
        until(lambda: list(tmp_path.glob("spans-*.jsonl")))
        (path,) = tmp_path.glob("spans-*.jsonl")
        until(lambda: path.read_text().endswith("\n"))
        assert [line["n"] for line in lines(path) if line["k"] == "b"] == ["trainer"]
    own.close()


def test_a_file_can_go_on_after_close(tmp_path: Path) -> None:
    """A thread that ends its span after the exit handler ran still gets its line into the same file."""
    own = Recorder(tmp_path, "driver", threaded=False)
    with own.span(kinds.SpanKind("late", "spark")):
        own.close()
    assert [(span.name, span.truncated) for span in only(tmp_path).spans] == [("late", False)]


def test_a_disk_that_refuses_does_not_end_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "no directory").write_text("")
    own = Recorder(tmp_path / "no directory", "worker", threaded=False)
    for _ in range(3):
        with own.span(kinds.STEP):
            pass
    own.close()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith(f"dlobd: 1 lines of spans of process {os.getpid()} are lost so far: ")
    assert own.cost.lost_lines == 3
    assert own.cost.bytes == own.cost.lines == 0


def test_a_full_disk_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = Recorder(tmp_path, "worker", threaded=False)
    with own.span(kinds.TRAINER):
        (tmp_path / f"spans-{os.getpid()}-{own._opened_ns}.jsonl").symlink_to("/dev/full")
        for _ in range(5):
            own.instant(kinds.InstantKind("x"))
            own.flush()
    own.close()
    first, last = capsys.readouterr().err.splitlines()
    assert "are lost so far: [Errno 28]" in first
    # a begin with the first instant, and the end; each time who writes and the anchor are tried again
    assert own.cost.lost_lines == 5 * 3 + 1 + 3 + 3
    assert last == f"dlobd: {own.cost.lost_lines} lines of spans of process {os.getpid()} are lost in all"
    assert own.cost.lines == 0


def test_the_memory_of_a_recorder_does_not_grow(tmp_path: Path) -> None:
    """A loop that only records is faster than the writing thread, so it writes by itself."""
    own = Recorder(tmp_path, "worker")

    def record(spans: int) -> int:
        tracemalloc.reset_peak()
        for k in range(spans):
            with own.span(kinds.GET, bytes=k), own.span(kinds.STEP, {"call": k}):
                pass
        return tracemalloc.get_traced_memory()[1]

    tracemalloc.start()
    try:
        with own.span(kinds.TRAINER):
            first = record(MOST_QUEUED)
            later = record(4 * MOST_QUEUED)
    finally:
        tracemalloc.stop()
    own.close()
    assert later < 2.2 * first  # one queue may be in the hands of the writing thread while the other one fills
    assert own.cost.lost_lines == 0
    assert len(only(tmp_path).spans) == 1 + 2 * 5 * MOST_QUEUED


def test_values_without_a_json_type_are_written_as_text(tmp_path: Path) -> None:
    own = Recorder(tmp_path, "driver", threaded=False)
    with own.span(kinds.SpanKind("read", "hdfs"), path=Path("/a b"), title="Zürich\n"):
        pass
    own.close()
    assert only(tmp_path).spans[0].attrs == {"path": "/a b", "title": "Zürich\n"}


def test_a_span_of_an_unregistered_kind_is_refused() -> None:
    process = Process("host", "driver", 0, 1)
    recorded = RecordedProcess(process, "domain", 0, False, Path("spans-1-2.jsonl"))
    recorded.spans = RecordedSpans.of([RecordedSpan(1, 0, "spark", "of another version", 0, 9, False, {}, {}, "")])
    with pytest.raises(BundleError, match="span of unknown kind: layer 'spark', name 'of another version'"):
        LaneBuilder("driver", process).add_recorded(recorded)


@pytest.mark.parametrize(
    ("layer", "name", "expected"),
    [
        ("feed", "get", (kinds.GET, "")),
        ("hdfs", "read test set", (kinds.READ_FILE, "test set")),
        ("tensorflow", "read test set", (kinds.READ_LOCAL_FILE, "test set")),
        ("hdfs", "write staging", (kinds.WRITE_STAGING, "")),
        ("hdfs", "OPEN NameNode", (kinds.NAMENODE_CALL, "OPEN")),
        ("yarn", "submit RPC", (kinds.SUBMIT_RPC, "")),
        ("yarn", "allocate and launch AM container", (kinds.ALLOCATE_AND_LAUNCH_CONTAINER, "AM")),
        ("spark", "get", None),
    ],
)
def test_a_recorded_span_finds_its_kind(layer: str, name: str, expected: tuple[kinds.SpanKind, str] | None) -> None:
    found = kinds.kind_of(layer, name)
    assert found == expected
    if found and expected:
        assert found[0] is expected[0]
        assert found[0].text(found[1]) == name


def test_causes_and_copies_are_registered_rows() -> None:
    assert kinds.cause_of("HDFS client's close retry, until its next try (0.4 s)") is kinds.CLOSE_RETRY_READ
    assert kinds.cause_of(kinds.DONE_MARKER_POLL.text("0.1 s")) is kinds.DONE_MARKER_POLL
    assert kinds.cause_of("poll") is None
    for row in (*kinds.SPANS.values(), *kinds.INSTANTS.values(), *kinds.CAUSES.values()):
        assert copy.deepcopy(row) is row
        assert pickle.loads(pickle.dumps(row)) is row
