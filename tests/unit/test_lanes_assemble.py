"""Traces from damaged, incomplete and stalled runs, and phases of Spark's JVMs."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlobd import spans as kinds
from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import Attribution, Trace
from dlobd.errors import BundleError
from dlobd.evidence import log4j
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.jvm import JvmLife
from dlobd.evidence.log4j import LogLine, read
from dlobd.evidence.recorded_spans import RecordedSpan, RecordedSpans
from dlobd.evidence.recorder import RecordedProcess
from dlobd.schema import Process
from dlobd.timeline import jvm
from dlobd.timeline.assemble import _Waits, assemble
from dlobd.timeline.builder import LaneBuilder
from dlobd.timeline.ranks import Rank, last_executor
from tests.captured import note_sizes

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "quick-run", tmp_path / "run"))


def adds_up(trace: Trace) -> None:
    """Check that parts sum to the wall, none is negative, and spans are well formed."""
    found = attribute(trace)
    assert sum(layer.ns for layer in found.layers) + found.unattributed_ns == trace.wall_ns
    assert all(layer.ns >= 0 for layer in found.layers)
    assert all(span.end_ns >= span.start_ns for span in trace.spans)
    assert len({span.id for span in trace.spans}) == len(trace.spans)


NEEDED = ("evidence/window.json", "evidence/job.json")


@pytest.mark.parametrize("name", NEEDED)
def test_without_window_or_job_there_is_no_trace(bundle: Path, name: str) -> None:
    path = bundle / name
    for data in (path.read_bytes()[:-7], b"", b"[]"):
        path.write_bytes(data)
        with pytest.raises(BundleError, match=f"{name} is damaged"):
            assemble(Evidence(bundle))
    path.unlink()
    with pytest.raises(BundleError, match=" has no "):
        assemble(Evidence(bundle))


def test_with_the_window_alone_everything_waits_for_spark_submit(bundle: Path) -> None:
    for part in ("spans", "logs"):
        shutil.rmtree(bundle / part)
    (bundle / "evidence" / "driver-jvm.log").unlink()
    trace = assemble(Evidence(bundle))
    found = attribute(trace)
    assert {span.lane for span in trace.spans} == {"client"}
    assert found.unattributed_ns > 0.99 * trace.wall_ns
    adds_up(trace)


def test_a_killed_executor_is_closed_at_its_last_evidence(bundle: Path) -> None:
    container = next((bundle / "logs" / "containers").glob("*_000003"))
    stderr = container / "stderr"
    text = stderr.read_text()
    stderr.write_text(text[: text.index("Finished task")])
    jvm = container / "jvm.log"
    jvm.write_text("".join(line for line in jvm.read_text().splitlines(keepends=True) if "exit" not in line))
    spans = assemble(Evidence(bundle)).spans
    cut = [span for span in spans if span.truncated]
    assert {span.lane for span in cut} == {"executor-2"}
    assert all(span.name.startswith("task of") for span in cut)
    ends = [span.end_ns for span in spans if span.lane == "executor-2"]
    assert max(span.end_ns for span in cut) == max(ends)
    adds_up(assemble(Evidence(bundle)))


def test_an_executor_that_registers_too_late_releases_no_wait(bundle: Path) -> None:
    """On a slow machine Spark starts without it after its own timeout."""
    log = bundle / "logs" / "driver.stderr"
    lines = log.read_text().splitlines(keepends=True)
    (ready,) = [line for line in lines if "SchedulerBackend is ready" in line]
    last = [line for line in lines if ": Registered executor" in line][-1]
    early_ns = int(last.split()[0]) - 100_000_000
    log.write_text("".join(lines).replace(ready, f"{early_ns} {ready.partition(' ')[2]}"))
    trace = assemble(Evidence(bundle))
    (wait,) = [span for span in trace.spans if span.name == "wait for executors"]
    assert (wait.end_ns, wait.released_ns) == (early_ns, None)
    assert trace.clips == ()
    adds_up(trace)


def test_a_new_state_that_is_logged_after_the_answer_is_no_contradiction(bundle: Path) -> None:
    """On a busy machine the ApplicationMaster goes on before the ResourceManager logs that it runs."""
    answer = line_with(bundle, AM, "Response <-", "registerApplicationMaster")
    log = bundle / "logs" / RM
    state = line_with(bundle, RM, "State change from LAUNCHED to RUNNING")
    log.write_text(log.read_text().replace(str(state.at_ns), str(answer.at_ns + 20_000_000)))
    note_sizes(bundle)
    trace = assemble(Evidence(bundle))
    assert [clip for clip in attribute(trace).clips if clip.kind == "inconsistent"] == []
    begun = {span.start_ns for span in trace.spans if span.name == "AM prepares its request"}
    assert begun == {answer.at_ns}


def test_only_as_many_executors_are_waited_for_as_were_requested_at_first() -> None:
    """The third executor replaced a lost one."""
    line = LogLine(0, "INFO", "yarn.YarnAllocator", "Submitted 2 unlocalized container requests.", "AM")
    registered = {name: LogLine(at_ns, "INFO", "", "", "") for name, at_ns in (("1", 20), ("2", 10), ("3", 30))}
    found: Any = SimpleNamespace(
        executors=registered,
        driver=SimpleNamespace(log=SimpleNamespace(registered=registered)),
        application_master=SimpleNamespace(requested=line),
    )
    assert last_executor(found, ()) == "1"
    found.application_master.requested = None
    assert last_executor(found, ()) == "3"


def test_an_executor_that_replaces_a_lost_one_is_not_the_way_to_the_first_step(bundle: Path) -> None:
    before = assemble(Evidence(bundle))
    log = bundle / "logs" / "driver.stderr"
    lines = log.read_text().splitlines(keepends=True)
    last = next(line for line in reversed(lines) if ": Registered executor" in line)
    late_ns = int(lines[-1].split()[0])
    log.write_text("".join([*lines, f"{late_ns} {last.partition(' ')[2]}".replace("with ID 2", "with ID 3")]))
    assert "with ID 3" in log.read_text()
    trace = assemble(Evidence(bundle))
    assert [event.event for event in trace.startup] == [event.event for event in before.startup]
    (wait,) = [span for span in trace.spans if span.name == "wait for executors"]
    # the ApplicationMaster's log does not name its container: what the wait was for is not certain any more
    assert replace(wait, unknown=False) in before.spans


WORKER, TRAINER = 11, 12


def recorded(pid: int, parent: int, *spans: tuple[str, int, int]) -> RecordedProcess:
    process = RecordedProcess(Process("host", "worker", 0, pid), "domain", 0, True, Path(), parent=parent)
    process.spans = RecordedSpans.of(
        RecordedSpan(number, 0, "launcher", name, start_ns, end_ns, False, {}, {}, "main")
        for number, (name, start_ns, end_ns) in enumerate(spans)
    )
    return process


@pytest.mark.parametrize(("begins_ns", "parent", "inside"), [(90, WORKER, False), (120, WORKER, False), (120, 1, True)])
def test_a_trainer_that_its_task_left_behind_is_in_no_task(begins_ns: int, parent: int, inside: bool) -> None:
    """The start task ends at 95; its trainer runs until 180, beside a feed task that begins at 100."""
    task = SimpleNamespace(executor="1", id=7, start_ns=100)
    worker = recorded(WORKER, 1, (kinds.START_TASK, 50, 95))
    trainer = recorded(TRAINER, parent, (kinds.TRAINER, begins_ns, 180))
    evidence: Any = SimpleNamespace(
        slot_of=lambda executor, task: 1,
        executor_containers={"1": "container"},
        executors={"1": SimpleNamespace(finished={7: 200})},
        driver=SimpleNamespace(log=SimpleNamespace(jobs=[SimpleNamespace(tasks=[task])])),
        recorded_in=lambda container: [worker, trainer],
    )
    rank = Rank(trainer, "1", "worker", 0, 85, 190, whole=True)
    assert _Waits(evidence, [rank]).in_task(rank) == ((85, 180) if inside else None)


QUICK = Path(__file__).parents[1] / "data" / "quick-run"


def line_with(bundle: Path, log: str, *words: str) -> LogLine:
    lines = read(bundle / "logs" / log)
    return next(line for line in lines if all(word in f"[{line.thread}]: {line.message}" for word in words))


AM, *EXECUTORS = (str(path.relative_to(QUICK / "logs")) for path in sorted(QUICK.rglob("stderr")))
RM = "daemons/resourcemanager.log"
STARTED = re.compile(r"Start request for container\S+_000003")
(NM,) = (f"daemons/{path.name}" for path in QUICK.rglob("nodemanager-?.log") if STARTED.search(path.read_text()))
LAST = max(EXECUTORS, key=lambda log: line_with(QUICK, log, "Finished task", "stage 2.0").at_ns)
(READER,) = (log for log in EXECUTORS if "train/part-00001.tfrecord" in (QUICK / "logs" / log).read_text())
STALL_NS = 2_000_000_000
UNCERTAIN_NS = 10_000
"""The uncertainty of timestamps in two logs."""

_LOG = re.compile(r"^(\d{6,}) (\d{4}-\S+)", re.MULTILINE)
_JVM = re.compile(r"^\[(\d+)ns\]", re.MULTILINE)
_LOG4J = re.compile(r"^(\d{4}-\S+)Z(?= \S+ INFO )", re.MULTILINE)
"""Lines of Log4j about itself have the wall time only."""
_TRACED = re.compile(r"^(\d{6,})( \d{4}-.*duration\(ns\): )(\d+)", re.MULTILINE)


def stalled(source: Path, directory: Path, at_ns: int, by_ns: int, but: Collection[Path] = ()) -> Path:
    """Copies the bundle `source` into `directory`, as if everything had stood still at `at_ns` for `by_ns`: later times
    are moved, and intervals around the moment are longer.

    Args:
        but: files of processes that continued, relative to the bundle.
    """
    bundle = directory / f"{source.name}-{at_ns}"
    shutil.copytree(source, bundle)

    def later(ns: int) -> int:
        return ns + by_ns if ns >= at_ns else ns

    anchor = json.loads((bundle / "evidence" / "window.json").read_text())["anchors"][0]

    def later_date(date: str) -> str:
        wall_ns = int(datetime.fromisoformat(f"{date[:26]}+00:00").timestamp() * 1e6) * 1000
        ns = wall_ns - anchor["wall_ns"] + anchor["monotonic_ns"]
        moved = datetime.fromisoformat(date[:26]) + timedelta(microseconds=(later(ns) - ns) / 1000)
        return f"{moved.isoformat(timespec='microseconds')}{date[26:]}Z"

    still = [path for path in bundle.rglob("*") if path.relative_to(bundle) not in but]
    for path in [path for path in still if path.suffix == ".log" or path.name.endswith("stderr")]:
        text = path.read_text()
        text = _TRACED.sub(lambda m: f"{m[1]}{m[2]}{_longer(int(m[1]) - int(m[3]), int(m[3]), later)}", text)
        text = _LOG.sub(lambda m: _stamp(int(m[1]), m[2], later), text)
        text = _LOG4J.sub(lambda m: later_date(m[1]), text)
        path.write_text(_JVM.sub(lambda m: f"[{later(int(m[1]))}ns]", text))
    for path in [path for path in still if path.name.startswith("spans-")]:
        lines = [_line(json.loads(line), later) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    window = bundle / "evidence" / "window.json"
    values = json.loads(window.read_text())
    values |= {key: later(values[key]) for key in ("exec_ns", "started_ns", "exit_ns")}
    window.write_text(json.dumps(values))
    note_sizes(bundle)
    return bundle


def _stamp(at_ns: int, date: str, later: Callable[[int], int]) -> str:
    """Return the moved monotonic time and date of a line; the wall clock continued."""
    moved_ns = later(at_ns)
    moved = datetime.fromisoformat(date) + timedelta(microseconds=(moved_ns - at_ns) / 1000)
    return f"{moved_ns} {moved.isoformat(timespec='milliseconds')}"


def _longer(start_ns: int, length_ns: int, later: Callable[[int], int]) -> int:
    return later(start_ns + length_ns) - later(start_ns)


def _line(line: dict[str, Any], later: Callable[[int], int]) -> dict[str, Any]:
    """Move a span's line. Anchors stay, because both clocks continue in a stall."""
    if line["k"] == "s":
        line["d"] = _longer(line["t"], line["d"], later)
    for key in ("t", "opened_ns", "start_ns"):
        if line["k"] != "anchor" and isinstance(line.get(key), int):
            line[key] = later(line[key])
    return line


def layers(found: Attribution) -> Counter[str]:
    return Counter({layer.layer: layer.ns for layer in found.layers}, unattributed=found.unattributed_ns)


def grown(before: Attribution, after: Attribution) -> dict[str, int]:
    """Return layers with times that differ by more than the uncertainty of timestamps."""
    here, there = layers(after), layers(before)
    differences = {layer: here[layer] - there[layer] for layer in here.keys() | there.keys()}
    return {layer: ns for layer, ns in differences.items() if abs(ns) > UNCERTAIN_NS}


CASES = {
    "the ResourceManager is slow to submit": ("driver.stderr", ("Submitting application app",), "yarn"),
    "the ResourceManager is slow to register": (AM, ("Registering the ApplicationMaster",), "yarn"),
    "the ApplicationMaster asks late": (RM, ("_000003 Container Transitioned", "to ALLOCATED"), "spark"),
    "the ResourceManager answers late": (RM, ("_000003 Container Transitioned", "to ACQUIRED"), "yarn"),
    "the ApplicationMaster launches late": (AM, ("Launching container", "_000003"), "spark"),
    "the NodeManagers accept late": (AM, ("ContainerLauncher-1", "Call ->", "startContainers"), "yarn"),
    "the NodeManager starts late": (NM, ("Start request for container", "_000003"), "yarn"),
    "an executor reports the last task late": (LAST, ("Finished task", "stage 2.0"), "spark"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_stall_belongs_to_the_layer_at_work(case: str, tmp_path: Path) -> None:
    log, words, layer = CASES[case]
    before = attribute(assemble(Evidence(QUICK)))
    after = attribute(
        assemble(Evidence(stalled(QUICK, tmp_path, line_with(QUICK, log, *words).at_ns + 1000, STALL_NS)))
    )
    difference = grown(before, after)
    assert difference.keys() == {layer}, difference
    assert difference[layer] == pytest.approx(STALL_NS, abs=UNCERTAIN_NS)
    assert not [clip for clip in after.clips if clip.kind in ("inconsistent", "cycle")]


def test_a_feed_ends_with_sparks_tasks(tmp_path: Path) -> None:
    """From the end of the trainers on, the job waits for Spark."""
    ranks = {
        path.relative_to(QUICK)
        for path in QUICK.rglob("spans-*.jsonl")
        if any(f'"role":"{role}"' in path.read_text() for role in ("chief", "worker"))
    }
    assert len(ranks) == 2
    done_ns = max(line_with(QUICK, log, "Finished task", "stage 1.0").at_ns for log in EXECUTORS)
    before = assemble(Evidence(QUICK))
    ended_ns = max(span.end_ns for span in before.spans if span.lane.startswith("rank-") and "done-marker" in span.name)
    by_ns = ended_ns - done_ns + 2_000_000_000
    trace = assemble(Evidence(stalled(QUICK, tmp_path, done_ns + 1000, by_ns, but=ranks)))
    (feed,) = [span for span in trace.spans if span.name == "feed job"]
    late_ns = feed.end_ns - ended_ns
    assert late_ns > 1_000_000_000
    (reported,) = [s for s in trace.spans if s.name.startswith("report task") and s.end_ns - s.start_ns > by_ns]
    after = attribute(trace)
    difference = grown(attribute(before), after)
    assert difference["spark"] == pytest.approx(late_ns, abs=0.2 * late_ns)
    assert sum(row.unexplained_ns for row in after.layers) < 0.01 * late_ns
    named = [s for s in after.segments if s.span == reported]
    assert sum(s.end_ns - s.start_ns for s in named) > 0.9 * late_ns


@pytest.mark.parametrize(
    ("log", "words", "after_ns"),
    [
        (READER, ("input split",), 1000),
        ("daemons/namenode-audit.log", ("cmd=open", "part-00001.tfrecord", "proto=rpc"), 1000),
        ("daemons/datanode-0-clienttrace.log", ("HDFS_READ",), -1000),
    ],
    ids=["before the NameNode answers", "before the DataNode accepts", "while the DataNode sends"],
)
def test_the_bound_of_an_input_holds_a_slow_hdfs(
    log: str, words: tuple[str, ...], after_ns: int, tmp_path: Path
) -> None:
    blocks = Evidence(QUICK).hdfs.blocks["/dlobd/data/mnist-v1-w2-n6000-t2000-s1-r1/train/part-00001.tfrecord"]
    if "clienttrace" in log:
        log, words = _trace_of(blocks)
    at_ns = line_with(QUICK, log, *words).at_ns + after_ns
    by_lane = [
        {i.lane: i.hi_ns for i in assemble(Evidence(bundle)).intervals if i.name == "read input"}
        for bundle in (QUICK, stalled(QUICK, tmp_path, at_ns, STALL_NS))
    ]
    lane = f"executor-{EXECUTORS.index(READER) + 1}"
    assert by_lane[1][lane] - by_lane[0][lane] == pytest.approx(STALL_NS, abs=UNCERTAIN_NS)


def _trace_of(blocks: set[str]) -> tuple[str, tuple[str, ...]]:
    for log in ("daemons/datanode-0-clienttrace.log", "daemons/datanode-1-clienttrace.log"):
        for block in blocks:
            if f"{block}_" in (QUICK / "logs" / log).read_text():
                return log, ("HDFS_READ", f"{block}_")
    raise AssertionError(blocks)


EXECUTOR = """\
17455972922675 2026-11-25T01:03:56.238 INFO util.SignalUtils [main]: Registering signal handler for INT
17458970000000 2026-11-25T01:03:59.236 INFO spark.SecurityManager [main]: Changing view acls to: root
17458970000001 2026-11-25T01:03:59.236 INFO spark.SecurityManager [main]: Changing view acls groups to: root
17459465680810 2026-11-25T01:03:59.731 INFO client.TransportClientFactory [netty-rpc-connection-0]: Successfully created connection to /127.0.0.1:45631 after 202 ms (0 ms spent in bootstraps)
17460100000000 2026-11-25T01:04:00.366 INFO spark.SecurityManager [main]: Changing view acls to: root
17463002708143 2026-11-25T01:04:03.268 INFO executor.YarnCoarseGrainedExecutorBackend [dispatcher-Executor]: Connecting to driver: spark://CoarseGrainedScheduler@127.0.0.1:45631
17463240000000 2026-11-25T01:04:03.500 INFO spark.SecurityManager [dispatcher-Executor]: Changing view acls to: root
17463471105875 2026-11-25T01:04:03.737 INFO executor.YarnCoarseGrainedExecutorBackend [dispatcher-Executor]: Successfully registered with driver
"""  # noqa: E501  as they were written


def added(text: str, until_ns: int | None = None) -> list[tuple[str, int, int]]:
    lane = LaneBuilder("executor-1", Process("host", "executor", 1, 0))
    jvm.add_phases(lane, log4j.parse(text.splitlines(), "executor"), jvm.EXECUTOR, "executor log", until_ns)
    return [(span.name, span.start_ns, span.end_ns) for span in lane.spans]


def test_phases_follow_each_other_up_to_their_end() -> None:
    assert added(EXECUTOR) == [
        ("executor logs in", 17455972922675, 17458970000000),
        ("executor fetches settings", 17458970000000, 17460100000000),
        ("executor creates SparkEnv", 17460100000000, 17463002708143),
        ("executor asks to be registered", 17463002708143, 17463471105875),
    ]
    assert added(EXECUTOR, 17463400000000)[-1] == ("executor asks to be registered", 17463002708143, 17463400000000)
    assert [name for name, _, _ in added(EXECUTOR, 17460000000000)] == ["executor logs in", "executor fetches settings"]
    cut = EXECUTOR[: EXECUTOR.index("17463471105875")]
    assert [name for name, _, _ in added(cut)] == [name for name, _, _ in added(EXECUTOR)[:-1]]
    bare = EXECUTOR.replace(" [main]", "").replace(" [dispatcher-Executor]", "")
    assert added(bare.replace(" [netty-rpc-connection-0]", "")) == []


def test_the_start_and_the_pauses_of_a_jvm_are_spans() -> None:
    lane = LaneBuilder("executor-1", Process("host", "executor", 1, 0))
    life = JvmLife(100, 900, 15, 140, ((50, 120), (150, 165), (890, 910)))
    first = log4j.LogLine(350, "INFO", "a", "Started daemon with process name: 7@host", "executor", "main")
    jvm.add_boot(lane, life, (200, 300), first, "JVM log", "log")
    jvm.add_pauses(lane, life, 100, 900, "JVM log")
    assert [(span.name, span.start_ns, span.end_ns) for span in lane.spans] == [
        ("create JVM", 100, 140),
        ("configure log4j", 200, 300),
        ("executor names its process", 300, 350),
        ("GC pause", 150, 165),
    ]
    old = LaneBuilder("executor-1", Process("host", "executor", 1, 0))
    jvm.add_boot(old, JvmLife(100, 900, 15, None, ((150, 165),)), None, first, "JVM log", "log")
    jvm.add_pauses(old, JvmLife(100, 900, 15, None, ((150, 165),)), 100, 900, "JVM log")
    assert old.spans == []


def test_a_pause_inside_a_call_that_is_answered_later_holds_nothing_up() -> None:
    ms = 1_000_000
    lane = LaneBuilder("driver", Process("host", "driver", 1, 0))
    lane.add(kinds.SpanKind("getNewApplication RPC", "yarn"), 100 * ms, 500 * ms, "log")
    life = JvmLife(0, 900 * ms, 30 * ms, ms, ((200 * ms, 210 * ms), (490 * ms, 500 * ms), (600 * ms, 610 * ms)))
    jvm.add_pauses(lane, life, 0, 900 * ms, "JVM log")
    assert [span.start_ns // ms for span in lane.spans if span.name == "GC pause"] == [490, 600]


def test_a_datanode_that_waits_for_the_namenode_is_not_slow(tmp_path: Path) -> None:
    """A DataNode creates the file of a WebHDFS client at the NameNode, which stands still meanwhile."""
    spans = assemble(Evidence(QUICK)).spans
    writes = [s for s in spans if s.kind is kinds.WRITE_FILE and s.lane == "rank-0" and s.detail == kinds.MODEL]
    write = max(writes, key=lambda span: span.end_ns - span.start_ns)
    sent = next(
        s for s in spans if s.lane == write.lane and s.name == "CREATE DataNode" and s.start_ns > write.start_ns
    )
    bundle = tmp_path / "quick-run"
    shutil.copytree(QUICK, bundle)
    log = bundle / "logs" / "daemons" / "datanode-0.log"
    at_ns = sent.start_ns + 1000
    stamps = at_ns, at_ns + 2000
    called = f'Call -> /127.0.0.1:9000: create "{write.attrs["path"]}"', "Response <- /127.0.0.1:9000: create "
    with log.open("a") as file:
        for moment_ns, message in zip(stamps, called, strict=True):
            file.write(f"{moment_ns} 2026-01-01T00:00:00.000 TRACE ipc.ProtobufRpcEngine2: 7: {message}\n")
    note_sizes(bundle)
    trace = assemble(Evidence(stalled(bundle, tmp_path / "stalled", at_ns + 1000, STALL_NS)))
    segments = attribute(trace).segments
    waited = {s.span.name: s.end_ns - s.start_ns for s in segments if s.span and s.layer == "hdfs"}
    waited = {name: ns for name, ns in waited.items() if ns >= STALL_NS}
    assert waited == {"create NameNode": STALL_NS + 2000}


def test_imports_for_an_unpickled_function_are_user_code(tmp_path: Path) -> None:
    own = QUICK.with_name("own-run")
    before = assemble(Evidence(own))
    unpickled = max((s for s in before.spans if s.kind is kinds.UNPICKLE_FUNCTION), key=lambda s: s.end_ns - s.start_ns)
    ns = unpickled.end_ns - unpickled.start_ns - 2000
    shutil.copytree(own, bundle := tmp_path / own.name)
    (path,) = bundle.glob(f"spans/*/spans-{unpickled.process.pid}-*.jsonl")
    with path.open("a") as file:
        for package, by in (("mine", ""), ("pyspark", ""), ("numpy", "mine")):
            attributes = {"package": package, "by": by, "ns": ns, "own_ns": ns}
            file.write(
                json.dumps({"k": "i", "n": "package imported", "t": unpickled.end_ns - 1000, "a": attributes}) + "\n"
            )
        # an import that the recorder has as two spans; the inner span begins a little before the import
        parent, line = (
            int(unpickled.id.rpartition("-")[2]),
            {"k": "s", "l": "launcher", "n": "import tensorflowonspark"},
        )
        for number, inside, start_ns, end_ns in ((901, parent, 700, 100), (902, 901, 600, 200)):
            more = {"i": number, "p": inside, "t": unpickled.end_ns - start_ns, "d": start_ns - end_ns}
            file.write(json.dumps(line | more) + "\n")
        attributes = {"package": "tensorflowonspark", "by": "", "ns": 440, "own_ns": 440}
        file.write(json.dumps({"k": "i", "n": "package imported", "t": unpickled.end_ns - 150, "a": attributes}) + "\n")
    note_sizes(bundle)
    added = [span for span in assemble(Evidence(bundle)).spans if span.kind is kinds.USER_IMPORT]
    assert [(s.name, s.layer, s.lane, s.end_ns - s.start_ns) for s in added] == [
        ("import mine", "user", unpickled.lane, ns)
    ]
