"""Steps, input waits and epochs of a user's main function, from the calls that a rank recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dlobd import spans as kinds
from dlobd.attribution.attribute import attribute
from dlobd.bundle.store import Bundle
from dlobd.evidence import own_steps
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import RecordedProcess, RecordedSpan, read
from dlobd.measures.frames import RunBundle
from dlobd.report import tables
from dlobd.report.page.steps import stepping_lanes
from dlobd.timeline.assemble import assemble
from dlobd.timeline.ranks import ranks
from tests.captured import copy_of, note_sizes, recomputed

MS = 10**6
MAIN = {"role": "chief", "index": 0, "in_task": True}
Step = tuple[Any, ...]  # name, length in ms, attributes


def call(function: str, number: int, trains: object = True, **attrs: object) -> Step:
    return f"call of {function}", 2, {"function": number, "trains": trains, **attrs}


WAIT: Step = (kinds.INPUT_WAIT, 1, {})


def lines(begin_ns: int, ids: int, steps: list[Step], parent: int = 0) -> list[dict[str, Any]]:
    made, at_ns = [], begin_ns
    for id_, (name, ms, attrs) in enumerate(steps, ids):
        at_ns += MS
        made.append({"k": "s", "i": id_, "p": parent, "l": "tensorflow", "n": name, "t": at_ns, "d": ms * MS})
        made[-1] |= {"a": attrs} if attrs else {}
        at_ns += ms * MS
    return made


def recorded(path: Path, steps: list[Step]) -> RecordedProcess:
    """Return a process with a main function and these spans inside it."""
    head = {"k": "process", "host": "h", "role": "chief", "index": 0, "pid": 1, "start_ns": 0, "opened_ns": 0}
    head |= {"forked": False, "domain": "d"}
    inside = lines(0, 2, steps, parent=1)
    main = {"k": "s", "i": 1, "p": 0, "l": "tensorflow", "n": "user code", "t": 0, "d": 10**12, "a": MAIN}
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, main, *inside)))
    process = read(path)
    assert process is not None
    assert process.bad_lines == 0
    process.spans = own_steps.numbered(process.spans)
    return process


def steps_of(process: RecordedProcess) -> list[RecordedSpan]:
    return list(process.spans.where(process.spans.is_step))


TRAIN, TEST, OTHER = call("train_step", 1), call("test_step", 2, False), call("other", 3)
ENDED = call("train_step", 1, error="OutOfRangeError")


@pytest.mark.parametrize(
    ("steps", "count"),
    [
        pytest.param([WAIT, TRAIN] * 5, 5, id="custom loop"),
        pytest.param([TRAIN, TRAIN, TEST] * 4 + [TEST], 8, id="evaluation between"),
        pytest.param([call("gradients", 4, False), call("apply", 5)] * 6, 6, id="gradients and apply"),
        pytest.param([TRAIN, OTHER] * 6, 6, id="two functions that train in turn"),
        pytest.param([OTHER, OTHER, OTHER, TRAIN] * 6, 18, id="several critic steps for each generator step"),
        pytest.param(([TRAIN] * 10 + [OTHER]) * 3, 30, id="copy to a target network"),
        pytest.param([OTHER] * 4 + [TRAIN] * 6, 10, id="pre-training, then training"),
        pytest.param(([OTHER] * 4 + [TRAIN] * 6) * 3, 30, id="phases in each epoch"),
        pytest.param([call("initialise", 9), *[TRAIN] * 6], 6, id="initialisation by a tf.function"),
        pytest.param([call("train_step", n) for n in range(1, 8)], 7, id="function made again for each step"),
        pytest.param([call("train", 1), call("train", 2)] * 5, 5, id="two functions of one name"),
        pytest.param([*[TRAIN] * 3, ENDED], 3, id="a call that only finds the end of the input"),
        pytest.param([call("train_function", 0, steps=4)] * 2 + [call("train_function", 0, steps=1)], 9, id="groups"),
        pytest.param([call("epoch", 1, steps=None)] * 2, None, id="loop inside the function"),
        pytest.param([TRAIN, call("eager", 2, None)], None, id="function that ran as Python code"),
        pytest.param([("step", 2, {}), TRAIN, ("step", 2, {}), call("epoch", 1, steps=None)], 2, id="marked"),
        pytest.param([TEST, WAIT], None, id="no training"),
        pytest.param([], None, id="nothing recorded"),
    ],
)
def test_steps_are_counted(tmp_path: Path, steps: list[Step], count: int | None) -> None:
    process = recorded(tmp_path / "spans-1-0.jsonl", steps)
    assert own_steps.count(process.spans) == count
    found = steps_of(process)
    assert [span.call for span in found] == list(range(len(found)))
    assert [span.name for span in found] == [kinds.FIRST_STEP, *[kinds.STEP] * (len(found) - 1)][: len(found)]


def test_without_hooks_only_marked_steps_count(tmp_path: Path) -> None:
    process = recorded(tmp_path / "spans-1-0.jsonl", [TRAIN] * 3)
    assert own_steps.count(process.spans, observed=False) is None
    process = recorded(tmp_path / "spans-1-0.jsonl", [("step", 2, {})] * 3)
    assert own_steps.count(process.spans, observed=False) == 3


def test_a_call_of_several_steps_has_no_length_of_a_step(tmp_path: Path) -> None:
    process = recorded(tmp_path / "spans-1-0.jsonl", [TRAIN, call("train_step", 1, steps=4), TRAIN])
    assert own_steps.lengths_ns(process.spans) == (None, [])
    process = recorded(tmp_path / "spans-1-0.jsonl", [TRAIN] * 3)
    assert own_steps.lengths_ns(process.spans) == (2 * MS, [2 * MS] * 2)


EPOCH = [WAIT, TRAIN, WAIT, TRAIN, WAIT, TRAIN, (kinds.EVALUATE, 5, {}), ("span load", 3, {})]


def job(path: Path, *instants: dict[str, Any], inside: list[Step] = EPOCH) -> dict[str, Any]:
    """Add a rank to the captured job of a user, and compute it anew."""
    container = path / "spans" / "container_1795717270784_0023_01_000002"
    worker = next(container.glob("spans-25930-*.jsonl"))
    process = read(worker)
    assert process is not None
    around = max(process.named("user code"), key=lambda span: span.end_ns - span.start_ns)
    at_ns, ids = around.start_ns + MS, max(span.id for span in process.spans) + 1
    main = {"k": "s", "i": ids, "p": around.id, "l": "tensorflow", "n": "user code", "t": at_ns, "d": 60 * MS}
    main |= {"a": MAIN}
    assert at_ns + 60 * MS < around.end_ns
    marks = [instant | {"t": at_ns + instant["t"]} for instant in instants]
    made = [main, *lines(at_ns, ids + 1, inside, parent=ids), *marks]
    with worker.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in made)
    note_sizes(path)
    return recomputed(Bundle(path))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copy_of("own-run", tmp_path)


def test_a_job_with_steps(path: Path) -> None:
    done = {"k": "i", "n": kinds.OWN_EPOCH_DONE, "t": 40 * MS, "a": {"epoch": 1, "ns": 40 * MS, "loss": 0.5}}
    run = job(path, done)
    assert run["status"] == "ok", run["reason"]
    (rank,) = run["ranks"]
    assert (rank["steps"], rank["step_p50_ns"], rank["first_step_ns"]) == (3, 2 * MS, 2 * MS)
    assert (rank["feed_wait_ns"], rank["main_ns"]) == (3 * MS, 60 * MS)
    (epoch,) = run["epochs"]
    assert (epoch["epoch"], epoch["loss"], epoch["evaluation_ns"]) == (1, 0.5, 5 * MS)
    assert sum(layer["ns"] for layer in run["layers"]) + run["unattributed_ns"] == run["wall_ns"]
    (why,) = [row["why"] for row in run["not_measured"] if row["layer"] == "channel"]
    assert why.startswith("exchanges of gradients are part of your steps")
    trace = assemble(Evidence(path))
    events = {event.event for event in (*trace.startup, *trace.teardown)}
    assert kinds.LAST_STEP_DONE in events
    assert attribute(trace).unattributed_ns == run["unattributed_ns"]
    assert list(stepping_lanes(trace.spans)) == ["rank-0"]
    own = [span for span in trace.spans if span.kind is kinds.MARKED_MAIN]
    assert [(span.lane, span.detail) for span in own] == [("rank-0", "load")]
    bundle = RunBundle(path)
    assert list(bundle.steps()["step"]) == [0, 1, 2]
    table = tables.ranks(bundle.run)
    assert [column.name for column in table.columns][2] == "steps"
    assert table.rows[0][2] == 3


def test_unknown_steps_have_a_reason(path: Path) -> None:
    """TensorFlow has changed: neither a count nor a length is shown."""
    cause = "ImportError: cannot import name 'Function'"
    run = job(path, {"k": "i", "n": kinds.STEPS_UNKNOWN, "t": MS, "a": {"cause": cause}})
    assert run["status"] == "ok"
    assert (run["ranks"][0]["steps"], run["ranks"][0]["step_p50_ns"]) == (None, None)
    (why,) = [row["why"] for row in run["not_measured"] if row["layer"] == "channel"]
    assert why == f"the steps of your main function, and their exchanges, are unknown: {cause}"


def test_the_input_of_steps_that_take_it_themselves_is_unknown(path: Path) -> None:
    run = job(path, inside=[WAIT, *[call("train_function", 0)] * 4])
    assert (run["ranks"][0]["steps"], run["ranks"][0]["feed_wait_ns"]) == (4, None)
    assert len(ranks(Evidence(path))) == 1
