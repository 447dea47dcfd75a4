"""Hooks inside a user's main function: they count the steps as the script does, and change nothing of the script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dlobd import spans as kinds
from dlobd.evidence import own_steps
from dlobd.evidence.recorded_spans import RecordedSpans
from dlobd.evidence.recorder import RecordedProcess
from tests.recorded import read_all

FOREIGN = Path(__file__).parents[1] / "foreign"

RECORDED = """\
from types import SimpleNamespace
from dlobd import marks, tracing
from dlobd.job.user import hooks, steps
tracing.start({spans!r}, "python-worker")
marks.record_with(steps.mark)

def run(main, index=0):
    ctx = SimpleNamespace(job_name="", worker_num=index, cluster_spec={{}})
    return hooks.UserMain(main)(None, ctx)
"""
PLAIN = "def run(main, index=0): return main(None, None)\n"
ALL = """
import json, mains
for index, main in enumerate(mains.MAINS):
    print(json.dumps([main.__name__, *run(main, index)], default=str))
"""


def python(code: str, *more: Path, **variables: str) -> str:
    path = os.pathsep.join(map(str, (*more, FOREIGN, *sys.path)))
    environment = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=400, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def recorded(code: str, spans: Path, *more: Path) -> tuple[str, RecordedProcess]:
    out = python(RECORDED.format(spans=str(spans)) + code + "\ntracing.flush()\n", *more)
    (process,) = read_all(spans)
    process.spans = own_steps.numbered(process.spans)
    return out, process


Runs = tuple[list[list[Any]], list[list[Any]], RecordedProcess]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """All main functions in one process, with hooks and without: lines of name, own count and result."""
    out, process = recorded(ALL, tmp_path_factory.mktemp("spans"))
    plain = python(PLAIN + ALL)
    with_hooks, without = ([json.loads(line) for line in text.splitlines()] for text in (out, plain))
    return with_hooks, without, process


def inside(runs: Runs, name: str) -> RecordedSpans:
    index = next(index for index, line in enumerate(runs[0]) if line[0] == name)
    (main,) = [span for span in runs[2].spans if span.attrs.get("index") == index and "role" in span.attrs]
    spans = runs[2].spans
    return spans.where((main.start_ns <= spans.start_ns) & (spans.start_ns < main.end_ns))


def named(spans: RecordedSpans, name: str) -> RecordedSpans:
    return spans.named(name)


pytestmark = pytest.mark.timeout(900)


def test_hooks_change_no_result(runs: Runs) -> None:
    assert len(runs[0]) >= 12
    assert runs[0] == runs[1]
    assert not [at for at in runs[2].instants if at.name == kinds.STEPS_UNKNOWN]
    assert runs[2].bad_lines == 0


def test_steps_are_those_that_the_script_counts(runs: Runs) -> None:
    found = {name: own_steps.count(inside(runs, name)) for name, *_ in runs[0]}
    assert found == {name: count for name, count, _ in runs[0]}
    assert sum(count is not None for count in found.values()) >= 11


def test_input_waits_of_a_custom_loop(runs: Runs) -> None:
    """One for each batch, and one for the end of each epoch. Keras takes its input inside a step."""
    waits = named(inside(runs, "custom_loop"), kinds.INPUT_WAIT)
    assert [span.attrs.get("error") for span in waits] == ([None] * 12 + ["StopIteration"]) * 3
    assert not named(inside(runs, "fit"), kinds.INPUT_WAIT)


@pytest.mark.parametrize(
    ("name", "epochs"),
    [("fit", 3), ("fit_in_other_ways", 4), ("custom_loop", 3), ("evaluation_between", 2), ("two_functions", 1)],
)
def test_epochs(runs: Runs, name: str, epochs: int) -> None:
    """Of Keras, with its loss; else passes over tf.data in which a step ran. A pass of an evaluation is none."""
    spans = inside(runs, name)
    start_ns, end_ns = min(span.start_ns for span in spans), max(span.end_ns for span in spans)
    marks = [at for at in runs[2].instants if at.name == kinds.OWN_EPOCH_DONE and start_ns <= at.at_ns <= end_ns]
    assert [at.attrs["epoch"] for at in marks] == list(range(1, epochs + 1))
    assert all(("loss" in at.attrs) == name.startswith("fit") for at in marks)
    result = next(line[2] for line in runs[0] if line[0] == name)
    if name == "fit":
        assert [at.attrs["loss"] for at in marks] == result[0]


def test_evaluations_of_keras(runs: Runs) -> None:
    """Each validation after an epoch, and the call of `evaluate`. The calls inside are no steps."""
    spans = inside(runs, "fit")
    assert len(named(spans, kinds.EVALUATE)) == 4
    assert len(named(spans, kinds.CALL.text("predict"))) == 1


def test_retracing_is_an_attribute(runs: Runs) -> None:
    spans = inside(runs, "retracing")
    steps = spans.where(spans.is_step)
    # sizes 5, 6, 7 and 5 + epoch: the last is new only in epoch 3
    assert [bool(span.attrs.get("traced")) for span in steps] == [True, True, True, False] * 3 + [True] * 4


def test_marks_win_over_calls(runs: Runs) -> None:
    spans = inside(runs, "marked")
    assert len(named(spans, kinds.MARKED_MAIN.text("load"))) == 7
    steps = {span.id for span in spans.where(spans.is_step)}
    assert all(span.parent in steps for span in named(spans, kinds.MARKED_MAIN.text("load")))


FAKES = {
    "tensorflow": "def function(f): return f\n",
    "keras": "class Model:\n    def fit(self): return 7\nclass callbacks: pass\n",
}


def test_a_script_does_not_fail_for_a_tensorflow_without_the_expected_parts(tmp_path: Path) -> None:
    for package, text in FAKES.items():
        (tmp_path / f"{package}.py").write_text(text)
    code = """
def main(args, ctx):
    import tensorflow, keras
    return tensorflow.function(len)([1, 2]), keras.Model().fit()
assert run(main) == run(main, 1) == (2, 7)
"""
    _, process = recorded(code, tmp_path / "spans", tmp_path)
    causes = [at.attrs["cause"] for at in process.instants if at.name == kinds.STEPS_UNKNOWN]
    assert len(causes) == 5
    for part in ("No module named 'tensorflow.", "attribute 'make_train_function'", "attribute 'CallbackList'"):
        assert any(part in cause for cause in causes)


def test_a_failure_while_a_call_is_classified_is_recorded_once(tmp_path: Path) -> None:
    code = """
def main(args, ctx):
    import tensorflow as tf
    value = tf.Variable(1.0)
    add = tf.function(lambda: value.assign_add(1.0))
    steps._properties = lambda graphs: graphs.no_such_member
    @tf.function
    def fail():
        tf.debugging.assert_equal(value, 5.0)
    try:
        fail()
    except tf.errors.InvalidArgumentError:
        pass
    add(), add()
    return float(value)
assert run(main) == 3.0
"""
    _, process = recorded(code, tmp_path)
    assert [at.attrs["cause"][:14] for at in process.instants if at.name == kinds.STEPS_UNKNOWN] == ["AttributeError"]
    assert own_steps.count(process.spans, observed=False) is None
    calls = [span for span in process.spans if span.name.startswith("call of ")]
    assert len(calls) == 2, "after the failure, no call is recorded"


def test_a_script_chooses_its_devices_after_the_hooks(tmp_path: Path) -> None:
    """Threads and virtual devices can be chosen only before the first operation. Threads and forks record nothing."""
    code = """
import os, threading
def main(args, ctx):
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
    value = tf.Variable(1.0)
    add = tf.function(lambda: value.assign_add(1.0))
    thread = threading.Thread(target=add)
    thread.start(), thread.join()
    if os.fork() == 0:
        os._exit(add.experimental_get_tracing_count() != 1 or steps._Main.thread)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    add()
    return len(tf.config.list_logical_devices("CPU"))
assert run(main) == 2
run(lambda args, ctx: None, 1)
import tensorflow as tf
tf.function(lambda: tf.constant(1))()  # after the main function
"""
    _, process = recorded(code, tmp_path)
    calls = process.spans.is_any(lambda layer, name: name.startswith("call of "))
    assert (process.spans.is_step | calls).sum() == 1


# --- dlobd.step() and dlobd.span() ---


def test_marks_do_nothing_without_a_recorder() -> None:
    code = """
import sys
before = set(sys.modules)
import dlobd
print(sorted(name for name in set(sys.modules) - before if name.startswith("dlobd") or "." not in name))
with dlobd.step(), dlobd.span("load"), dlobd.span(7):
    pass
@dlobd.span("work")
def work(n): return work(n - 1) + 1 if n else 0
assert work(3) == 3
try:
    with dlobd.step():
        raise StopIteration(5)
except StopIteration as error:
    assert error.value == 5
assert not [name for name in sys.modules if name.startswith("dlobd.") and name != "dlobd.marks"]
"""
    loaded = set(json.loads(python(code).replace("'", '"')))
    assert loaded & {"numpy", "pandas", "tensorflow", "pyspark", "json", "dlobd.tracing"} == set()


def test_marks_of_two_threads(tmp_path: Path) -> None:
    """A step inside a step counts too; an exception ends a mark."""
    code = """
import threading, dlobd
both = threading.Barrier(2, timeout=60)
def train(name):
    for n in range(50):
        with dlobd.step():
            both.wait()
            with dlobd.span(name), dlobd.step():
                pass
    try:
        with dlobd.span(""):
            raise ValueError
    except ValueError:
        pass
def main(args, ctx):
    threads = [threading.Thread(target=train, args=(name,), name=name) for name in ("one", "two")]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
run(main)
with dlobd.span("after"):
    pass
"""
    _, process = recorded(code, tmp_path)
    assert process.bad_lines == 0
    assert own_steps.count(process.spans) == 200
    for name in ("one", "two"):
        spans = dict(process.spans.other_threads())[name]
        spans = process.spans.where(spans)
        steps = {span.id for span in spans.where(spans.is_step)}
        own = named(spans, kinds.MARKED_MAIN.text(name))
        assert len(own) == 50
        assert all(span.parent in steps for span in own)
        assert len(named(spans, kinds.MARKED_MAIN.text("without a name"))) == 1
    assert not [span for span in process.spans if span.truncated]


def test_marks_outside_of_a_main_function_are_user_code(tmp_path: Path) -> None:
    code = """
import dlobd
with dlobd.span("load"), dlobd.step():
    pass
"""
    _, process = recorded(code, tmp_path)
    assert [(span.layer, span.name, span.kind) for span in process.spans] == [
        ("user", "span load", kinds.MARKED),
        ("user", "step", kinds.MARKED_STEP),
    ]
