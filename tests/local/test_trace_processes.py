"""The recorder over the life of a process: forks, exits, and kill -9. Every process is real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dlobd.evidence.recorder import RecordedProcess
from dlobd.tracing.recorder import FLUSH_S
from tests.recorded import read_all


def only(directory: Path) -> RecordedProcess:
    (process,) = read_all(directory)
    return process


def python(code: str, *arguments: str, check: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a process of its own, with more environment variables."""
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, check=check, timeout=30, env=environment)


FORK = """
import os, sys
from dlobd import spans as kinds, tracing
tracing.start(sys.argv[1], "python-worker", threaded=False)
with tracing.span(kinds.SpanKind("parent", "spark")):
    child = os.fork()
    if child == 0:
        # its parent's span is open here, and its end below must end nothing of the child
        tracing.span(kinds.SpanKind("never ended", "spark")).__enter__()
        with tracing.span(kinds.SpanKind("child", "tensorflow")):
            pass
        tracing.identify("worker", 1)
    else:
        os.waitpid(child, 0)
tracing.flush()
if child == 0:
    os._exit(0)
"""


def test_a_forked_child_writes_its_own_file_with_an_empty_stack(tmp_path: Path) -> None:
    """The child's first span has no parent, the parent's open span is not the child's, and neither file mixes them."""
    python(FORK, str(tmp_path))
    parent, child = read_all(tmp_path)
    assert (parent.forked, child.forked) == (False, True)
    assert parent.path != child.path
    assert parent.process.pid != child.process.pid
    assert [(s.name, s.parent, s.truncated) for s in parent.spans] == [("parent", 0, False)]
    endless, child_span = child.spans
    assert (endless.name, endless.parent, endless.truncated) == ("never ended", 0, True)
    assert (child_span.name, child_span.parent, child_span.truncated) == ("child", endless.id, False)
    assert (parent.process.role, child.process.role) == ("python-worker", "worker")
    assert parent.opened_ns < child.opened_ns


def test_a_forked_child_has_no_role_of_its_parent(tmp_path: Path) -> None:
    """Spark's daemon forks Python workers; what they, a rank or the driver fork is a child, at any depth."""
    code = """
import os, sys
from dlobd import spans as kinds, tracing
def forked(work):
    if not (pid := os.fork()):
        work()
        tracing.flush()
        os._exit(0)
    os.waitpid(pid, 0)
def mark():
    with tracing.span(kinds.OPEN): pass
def rank():
    tracing.identify("chief", 0); mark(); forked(lambda: (mark(), forked(mark)))
def worker():
    mark(); forked(rank); forked(lambda: forked(mark))
if sys.argv[2] == "daemon":
    tracing.start(sys.argv[1], "python-worker", threaded=False, forks="python-worker")
    mark(); forked(worker)
else:
    tracing.start(sys.argv[1], "driver")
    mark(); forked(mark)
tracing.flush()
"""
    for way, roles in (
        ("daemon", ["python-worker", "python-worker", "chief", "child", "child", "child"]),
        ("driver", ["driver", "child"]),
    ):
        python(code, str(tmp_path / way), way)
        found = read_all(tmp_path / way)
        assert [process.process.role for process in found] == roles
        assert [process.is_child for process in found] == [role == "child" for role in roles]


def test_a_forked_child_closes_its_parents_file(tmp_path: Path) -> None:
    code = FORK.replace(
        "pass",
        "print(*[os.readlink(f'/proc/self/fd/{f}') for f in os.listdir('/proc/self/fd')"
        " if os.path.exists(f'/proc/self/fd/{f}')], sep='\\n')",
    ).replace(
        'with tracing.span(kinds.SpanKind("parent", "spark")):',
        'tracing.instant(kinds.SAVED); tracing.flush()\nwith tracing.span(kinds.SpanKind("parent", "spark")):',
    )
    done = python(code, str(tmp_path))
    parent, _ = read_all(tmp_path)
    assert done.stdout.strip()
    assert str(parent.path) not in done.stdout


def test_no_thread_before_the_fork(tmp_path: Path) -> None:
    """Afterwards the recorder has a thread, which `threading` does not list: a script may join all that it lists."""
    code = """
import os, sys, threading
from dlobd import spans as kinds, tracing
tracing.start(sys.argv[1], "python-worker", threaded=False)
with tracing.span(kinds.SpanKind("import", "spark")):
    pass
tracing.instant(kinds.InstantKind("up"))
print(threading.active_count(), len(os.listdir("/proc/self/task")), flush=True)
if os.fork() == 0:
    with tracing.span(kinds.SpanKind("task", "spark")):
        print(threading.active_count(), len(os.listdir("/proc/self/task")), flush=True)
    os._exit(0)
os.wait()
"""
    assert python(code, str(tmp_path)).stdout.split() == ["1", "1", "1", "2"]


def test_what_nobody_records_costs_no_file(tmp_path: Path) -> None:
    code = """
import sys
from dlobd import spans as kinds, tracing
with tracing.span(kinds.OPEN) as span:
    span.note(bytes=1)
tracing.instant(kinds.InstantKind("x")); tracing.identify("worker", 1); tracing.flush()
tracing.start(sys.argv[1], "driver")
"""
    python(code, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_an_ordinary_exit_writes_everything(tmp_path: Path) -> None:
    code = (
        "import sys; from dlobd import spans as kinds, tracing; tracing.start(sys.argv[1], 'driver'); "
        "tracing.instant(kinds.InstantKind('last'))"
    )
    python(code, str(tmp_path))
    assert only(tmp_path).instant("last") is not None


def test_a_child_that_leaves_without_exit_handlers_has_written_its_spans(tmp_path: Path) -> None:
    """PySpark's workers end by os._exit: whenever a thread's outermost span ends, its lines are on disk."""
    code = """
import os, sys
from dlobd import spans as kinds, tracing
tracing.start(sys.argv[1], "python-worker", threaded=False)
with tracing.span(kinds.SpanKind("task", "spark")), tracing.span(kinds.PUT):
    pass
os._exit(0)
"""
    python(code, str(tmp_path))
    assert [(span.name, span.truncated) for span in only(tmp_path).spans] == [("task", False), ("put", False)]


def test_a_child_that_leaves_without_exit_handlers_has_said_what_recording_cost(tmp_path: Path) -> None:
    code = """
import os, sys
from dlobd import spans as kinds, tracing
tracing.start(sys.argv[1], "python-worker", threaded=False)
for _ in range(3):
    with tracing.span(kinds.SpanKind("task", "spark")):
        pass
if sys.argv[2] == "flush":
    tracing.flush()
os._exit(0)
"""
    for way, known in (("leave", 1), ("flush", 3)):
        python(code, str(tmp_path / way), way)
        process = only(tmp_path / way)
        assert (process.cost.spans, len(process.spans)) == (known, 3)


def test_a_recorder_that_is_switched_off_records_nothing(tmp_path: Path) -> None:
    """Not in the process, not in its children, and a start that says what the process is does no harm."""
    code = """
import os, sys
from dlobd import spans as kinds, tracing
assert tracing.start(sys.argv[1], "python-worker", threaded=False) is None
with tracing.span(kinds.SpanKind("task", "spark")) as span:
    span.note(bytes=1)
    child = os.fork()
    if child == 0:
        tracing.start(sys.argv[1], "worker", 1)
        with tracing.span(kinds.TRAINER):
            tracing.instant(kinds.InstantKind("x"))
        tracing.left_out(); tracing.flush()
        os._exit(0)
_, status = os.waitpid(child, 0)
sys.exit(status)
"""
    python(code, str(tmp_path), DLOBD_TRACE="off")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(subprocess.CalledProcessError):  # its own assertion: on, there is a recorder
        python(code, str(tmp_path), DLOBD_TRACE="on")


def test_a_disk_that_is_full_for_a_while_costs_the_lines_of_that_while(tmp_path: Path) -> None:
    """A write that is cut in the middle damages one line; what is lost is counted, in the file, once there is room."""
    code = """
import os, resource, sys
from dlobd import spans as kinds, tracing
own = tracing.start(sys.argv[1], "worker", threaded=False)
most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
with tracing.span(kinds.TRAINER):
    for k in range(100):
        if k in (10, 90):
            tracing.flush()
            room = own.cost.bytes + 500 if k == 10 else most
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, most))
        with tracing.span(kinds.STEP, k=k):
            pass
"""
    done = python(code, str(tmp_path))
    process = only(tmp_path)
    kept = [span.attrs["k"] for span in process.named("step")]
    assert kept[:10] == list(range(10))
    assert kept[-10:] == list(range(90, 100))
    assert process.cost.lost_lines == 100 - len(kept) > 70
    assert process.bad_lines == 1
    assert process.cost.bytes == process.path.read_bytes().rindex(b'{"k":"cost"')
    assert f"{process.cost.lost_lines} lines of spans of process {process.process.pid} are lost" in done.stderr


KILLED = """
import sys, time
from dlobd import spans as kinds, tracing
tracing.start(sys.argv[1], "worker", 1)
with tracing.span(kinds.TRAINER):
    k = 0
    while True:
        with tracing.span(kinds.STEP, k=k):
            time.sleep(0.002)
        k += 1
        print(k, time.monotonic_ns(), flush=True)
"""


def kill_after(code: str, directory: Path, steps: int) -> list[tuple[int, int]]:
    """Kills a process with -9 after it has printed `steps` lines; returns all that it printed: step, time."""
    with subprocess.Popen([sys.executable, "-c", code, str(directory)], stdout=subprocess.PIPE, text=True) as process:
        printed = [process.stdout.readline() for _ in range(steps)]
        process.send_signal(signal.SIGKILL)
        printed += process.stdout.readlines()
    return [(int(step), int(at)) for step, at in (line.split() for line in printed if line.endswith("\n"))]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[RecordedProcess, list[tuple[int, int]]]:
    """A trainer killed in the middle of its steps, and what it had printed."""
    directory = tmp_path_factory.mktemp("killed")
    printed = kill_after(KILLED, directory, 500)
    return only(directory), printed


def test_kill_9_leaves_all_but_the_last_lines(killed: tuple[RecordedProcess, list[tuple[int, int]]]) -> None:
    """Of a killed trainer at most the time between two writes is lost, and a line that was cut costs only itself."""
    process, printed = killed
    whole = [span for span in process.spans if span.name == "step" and not span.truncated]
    assert [span.attrs["k"] for span in whole] == list(range(len(whole)))
    assert len(whole) > 50
    lost = [at_ns for step, at_ns in printed if step > len(whole)]
    # the writer's own delay on a busy machine is not the recorder's promise: it gets as much again
    assert not lost or lost[-1] - lost[0] <= 2 * FLUSH_S * 1e9
    assert process.bad_lines <= 1
    # what recording cost was said at most a second earlier
    assert 0 < process.cost.lines <= process.lines
    assert process.cost.spans <= len(process.spans)


def test_a_killed_process_has_its_open_spans_truncated(
    killed: tuple[RecordedProcess, list[tuple[int, int]]],
) -> None:
    process, _ = killed
    (trainer,) = process.named("trainer")
    assert trainer.truncated
    assert trainer.end_ns == process.last_ns
    assert trainer.end_ns >= max(span.end_ns for span in process.spans)
    assert [span.name for span in process.spans if span.truncated] in (["trainer"], ["trainer", "step"])


def test_an_exception_does_not_leave_spans_open(tmp_path: Path) -> None:
    """A crash by an exception runs through the `with` blocks: every span has its end and the error's name."""
    code = """
import sys
from dlobd import spans as kinds, tracing
tracing.start(sys.argv[1], "driver")
with tracing.span(kinds.DRIVER), tracing.span(kinds.OPEN):
    raise RuntimeError("boom")
"""
    assert python(code, str(tmp_path), check=False).returncode == 1
    spans = only(tmp_path).spans
    assert [(span.name, span.truncated, span.attrs) for span in spans] == [
        ("driver", False, {"error": "RuntimeError"}),
        ("open", False, {"error": "RuntimeError"}),
    ]


def test_start_twice_only_says_what_the_process_has_become(tmp_path: Path) -> None:
    code = """
import sys
from dlobd import spans as kinds, tracing
first = tracing.start(sys.argv[1], "trainer")
assert tracing.start(sys.argv[1] + "/other", "worker", 2) is first
tracing.instant(kinds.InstantKind("x"))
"""
    python(code, str(tmp_path))
    assert [path.suffix for path in tmp_path.iterdir()] == [".jsonl"]
    assert (only(tmp_path).process.role, only(tmp_path).process.index) == ("worker", 2)


def test_the_recorder_needs_the_standard_library_only() -> None:
    """It runs in every process of a job, on the cluster's Python: importing it must not bring anything else along."""
    code = """
import sys
before = set(sys.modules)
import dlobd.tracing
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(new - set(sys.stdlib_module_names)))
"""
    assert python(code).stdout.split() == ["dlobd"]
