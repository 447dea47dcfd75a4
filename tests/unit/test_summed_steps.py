"""Summed steps: what they leave out is summed, and layers, steps and exchanges keep their exact times."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlobd import spans as kinds
from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import Attribution, Spans, Trace
from dlobd.evidence.recorder import RecordedProcess, read
from dlobd.measures.throughput import exchange_use
from dlobd.schema import MAIN_LANE, Process
from dlobd.spans import SpanKind
from dlobd.timeline.builder import LaneBuilder
from dlobd.tracing.recorder import OpenSpan, Recorder
from dlobd.tracing.summed_steps import EVERY, LeftOut
from dlobd.trust import records as checks
from tests.recorded import read_all

STEPS, RANKS, BYTES = 23, 3, 31_400
LEFT_OUT, KEPT = ("forward and backward", "wire", "unpack", "apply"), ("pack", "wait for peers")
FOREVER = 10**15


def times(seed: int) -> list[list[int]]:
    """The clock readings of each rank for `STEPS` synchronous steps: begins and ends in the order of `train`."""
    draw = random.Random(seed)
    found: list[list[int]] = [[1, 2] for _ in range(RANKS)]  # opening of the file, begin of the trainer
    for _ in range(STEPS):
        waiting = []
        for own in found:
            for _ in range(7):  # until this rank begins to wait for the others
                own.append(own[-1] + draw.randint(1, 900))
            waiting.append(own[-1])
        last = max(waiting)
        for own in found:
            own.append(max(last, own[-1]) + draw.randint(1, 20))
            for _ in range(8):
                own.append(own[-1] + draw.randint(1, 300))
    return [[*own, own[-1] + 5, FOREVER] for own in found]


def train(own: Recorder, steps: int = STEPS) -> None:
    """Record steps as `dlobd.job.training.step` and an exchange outside of the step do."""
    with own.span(kinds.TRAINER):
        for k in range(steps):
            with own.span(kinds.STEP, {"call": k}):
                with own.span(kinds.FORWARD_AND_BACKWARD):
                    pass
                with own.span(kinds.EXCHANGE, {"rendezvous": kinds.EXCHANGE_RENDEZVOUS, "call": k}):
                    with own.span(kinds.PACK) as pack:
                        pack.note(bytes=BYTES + k)
                    with own.span(kinds.WAIT_FOR_PEERS, {"call": k}):
                        pass
                    with own.span(kinds.WIRE, bytes=BYTES + k, call=k) as wire:
                        wire.note(transfers=[])
                    with own.span(kinds.UNPACK):
                        pass
                with own.span(kinds.APPLY):
                    pass
            if k % 5 == 0:
                own.flush()


def recorded(directory: Path, every: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> list[RecordedProcess]:
    """Record all ranks with the same clock readings, whatever is left out."""
    monkeypatch.setenv(EVERY, str(every))
    found = []
    for rank, readings in enumerate(times(seed)):
        clock: Iterator[int] = iter(readings)
        role, index = ("worker", rank - 1) if rank else ("chief", 0)
        own = Recorder(
            directory / f"{every}" / f"{rank}", role, index, now=lambda c=clock: next(c, FOREVER), threaded=False
        )
        train(own)
        own.close()
        found += read_all(own.directory)
    return found


def attributed(processes: list[RecordedProcess]) -> Attribution:
    client = Process("host", "client", 0, 1)
    main = LaneBuilder(MAIN_LANE, client)
    end_ns = max(int(process.spans.end_ns.max()) for process in processes)
    lanes = tuple(f"rank-{process.rank}" for process in processes)
    main.add(kinds.AWAIT_TRAINERS, 0, end_ns, "log", waits_for=lanes)
    parts: list[Any] = [*main.parts]
    for lane, process in zip(lanes, processes, strict=True):
        builder = LaneBuilder(lane, process.process)
        builder.add_recorded(process)
        parts += builder.parts
    return attribute(Trace(0, end_ns, Spans.joined(parts)))


@pytest.mark.parametrize("seed", range(20))
def test_layers_steps_and_exchanges_keep_their_times(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, summed = (recorded(tmp_path, every, seed, monkeypatch) for every in (1, 4))
    before, after = attributed(whole), attributed(summed)
    assert not before.clips
    assert not after.clips
    # all but the names of the spans: within a layer, the time of a summed step is that of the step, or of its exchange
    assert [replace(row, names=()) for row in after.layers] == [replace(row, names=()) for row in before.layers]
    assert before.layers != after.layers
    for one, other in zip(whole, summed, strict=True):
        assert other.steps().ns.tolist() == one.steps().ns.tolist()
        evidence = [SimpleNamespace(processes=[process]) for process in (one, other)]
        assert exchange_use(evidence[0]) == exchange_use(evidence[1]) != ()  # type: ignore[arg-type]


def test_other_steps_have_half_of_the_lines_and_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (process, *_) = recorded(tmp_path, 4, 1, monkeypatch)
    lines = [json.loads(line) for line in process.path.read_text().splitlines()]
    names = Counter(line["n"] for line in lines if line["k"] in ("s", "b"))
    assert names == {"trainer": 1, **dict.fromkeys(("step", "exchange", *KEPT), STEPS), **dict.fromkeys(LEFT_OUT, 6)}
    left_out = [k for k in range(STEPS) if k % 4]
    assert [span.attrs.get("left_out", 0) for span in process.steps()] == [4 * (k % 4 > 0) for k in range(STEPS)]
    assert {name: one.spans for (_, name), one in process.sums.items()} == dict.fromkeys(LEFT_OUT, len(left_out))
    assert process.sums["channel", "wire"].bytes == sum(BYTES + k for k in left_out)
    assert process.left_out == (4 * len(left_out), 4 * len(left_out))
    assert process.cost is not None
    assert process.cost.left_out == 4 * len(left_out)


def test_without_the_setting_nothing_is_summed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "1", "0", "ten"):
        monkeypatch.setenv(EVERY, value)
        own = Recorder(tmp_path / f"at {value}", "chief", threaded=False)
        train(own, 5)
        own.close()
        (path,) = own.directory.iterdir()
        assert path.read_text().count('"n":"pack"') == 5
        assert '"k":"sum"' not in path.read_text()
        assert "left_out" not in path.read_text().replace('"left_out":0}', "")  # of the cost


def test_a_killed_process_has_the_sums_of_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every cut between two writes, and at every line: a step without its sums is found."""
    (process, *_) = recorded(tmp_path, 4, 1, monkeypatch)
    lines = process.path.read_bytes().splitlines(keepends=True)
    compute: list[int | None] = []
    for count in range(1, len(lines)):
        process.path.write_bytes(b"".join(lines[:count]))
        cut = read(process.path)
        assert cut is not None
        written, summed = cut.left_out
        (use,) = exchange_use(SimpleNamespace(processes=[cut])) or (None,)  # type: ignore[arg-type]
        if use is None:
            continue
        if written == summed:
            steps, exchanges = (cut.named(name).ns.tolist() for name in ("step", "exchange"))
            assert 0 < use.compute_ns < sum(steps) - sum(exchanges[: len(steps)])  # type: ignore[operator]
        compute.append(use.compute_ns if written == summed else None)
        assert (use.compute_ns is None, use.overlap is None) == (written != summed,) * 2
    assert None in compute
    assert compute[-1] is not None


def test_a_lost_sum_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (process, *_) = recorded(tmp_path, 4, 1, monkeypatch)
    facts: Any = SimpleNamespace(evidence=SimpleNamespace(processes=[process]))
    compared = checks._spans(facts)
    assert compared is not None
    assert compared.holds
    assert compared.left == compared.right == len(process.spans) + process.left_out[0]
    del process.sums["channel", "wire"]
    compared = checks._spans(facts)
    assert compared is not None
    assert compared.holds is False


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setenv(EVERY, "2")
    return Recorder(tmp_path, "worker", threaded=False)


def names_inside(own: Recorder) -> list[str]:
    own.close()
    (process,) = read_all(own.directory)
    return [span.name for span in process.spans]


def test_other_layers_and_waits_stay(own: Recorder) -> None:
    feeder: dict[str, object] = {"waits_for": ["@feeder"]}
    with own.span(kinds.STEP, {"call": 1}):
        for kind, wait in (
            (kinds.READ_LOCAL_FILE, None),  # left out
            (kinds.READ_FILE, None),
            (kinds.NEXT_BATCH, None),
            (kinds.DECODE, feeder),
            (kinds.AGREE, {"call": 1}),
            (kinds.AUGMENT, {"call": 1}),  # left out
        ):
            with own.span(kind, wait, detail="x"):
                pass
    assert names_inside(own) == ["step", "read x", "next batch", "decode", "agree"]


def test_spans_inside_a_wait_stay(own: Recorder) -> None:
    """Time of an exchange that is no collective is its own; a barrier inside of it is a wait."""
    with own.span(kinds.STEP, {"call": 1}):
        with own.span(kinds.EXCHANGE, {"call": 1}):
            with own.span(kinds.PACK):
                pass
            with own.span(kinds.WAIT_FOR_PEERS), own.span(kinds.SUM):
                pass
            with own.span(kinds.UNPACK):
                pass
        with own.span(kinds.APPLY):
            pass
    assert names_inside(own) == ["step", "exchange", "wait for peers", "sum"]


def test_marked_steps_are_counted(own: Recorder) -> None:
    for _ in range(5):
        with own.span(kinds.MARKED_STEP), own.span(kinds.MARKED, detail="x"), own.span(kinds.MARKED, detail="y"):
            pass
    assert names_inside(own) == ["step", "span x", "span y", "step"] * 2 + ["step", "span x", "span y"]
    (process,) = read_all(own.directory)
    assert process.sums["user", "span {}"].spans == 4
    assert process.left_out == (4, 4)


def test_other_threads_are_recorded(own: Recorder) -> None:
    def read_ahead() -> None:
        with own.span(kinds.DECODE):
            pass

    with own.span(kinds.STEP, {"call": 1}):
        thread = threading.Thread(target=read_ahead)
        thread.start()
        thread.join()
    assert names_inside(own) == ["step", "decode"]


def test_errors_and_nested_steps(own: Recorder) -> None:
    """A step that fails is the end of its left-out spans; a step inside a step is a step."""
    with pytest.raises(ZeroDivisionError), own.span(kinds.STEP, {"call": 1}), own.span(kinds.DECODE):
        _ = 1 / 0
    with own.span(kinds.DECODE), own.span(kinds.STEP, {"call": 3}), own.span(kinds.STEP, {"call": 2}) as inner:
        assert isinstance(inner, OpenSpan)
        left_out = own.span(kinds.AUGMENT)
        assert isinstance(left_out, LeftOut)
        with left_out:
            pass
    assert names_inside(own) == ["step", "decode", "step", "step"]
    (process,) = read_all(own.directory)
    assert process.spans[0].attrs == {"error": "ZeroDivisionError", "left_out": 1}
    assert process.left_out == (2, 2)


def test_kinds_of_a_name_have_a_layer_each(own: Recorder) -> None:
    other = SpanKind("decode", "hdfs")
    with own.span(kinds.STEP, {"call": 1}):
        with own.span(kinds.DECODE):
            pass
        with own.span(other), own.span(other):
            pass
    assert names_inside(own) == ["step", "decode"]
    (process,) = read_all(own.directory)
    assert {key: one.spans for key, one in process.sums.items()} == {
        ("tensorflow", "decode"): 1,
        ("hdfs", "decode"): 1,
    }
