"""Each audit of stamps, lives, messages, marks and reports is seen to fail: by evidence that was changed, or, where a
capture has none of its kind, by evidence that is put beside it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlobd.attribution.audits import AUDITS, audit
from dlobd.attribution.claims import contradicted
from dlobd.attribution.importers.evidence import Evidence
from dlobd.record.run import Run
from tests.mutations.edits import both, changed, replaced, shifted, without_lines

DATA = Path(__file__).parents[1] / "data"
S, MS = 10**9, 10**6
WINDOW, MARKERS, JOB = "evidence/window.json", "evidence/markers.json", "evidence/job.json"
RM, NM = "logs/daemons/resourcemanager.log", "logs/daemons/nodemanager-1.log"
DRIVER, EVENTS, COLLECTED = "logs/driver.stderr", "evidence/event-log.jsonl", "evidence/collected.json"
PAGE_CACHE = "evidence/page_cache.json"
CHIEF = "spans/*_000003/spans-22956-*.jsonl"
DOMAIN = "host/00000000-0000-0000-0000-000000000000/time:[4026531834]"

Change = Callable[[Path], None]


def added(name: str, text: str) -> Change:
    """A file, or lines at the end of the first file of that name."""

    def change(path: Path) -> None:
        file = next(iter(sorted(path.glob(name))), path / name)
        file.write_text((file.read_text() if file.exists() else "") + text)

    return change


def as_json(name: str, value: Any) -> Change:
    """A file of JSON."""
    return lambda path: (path / name).write_text(json.dumps(value)) and None


def sampled(*lines: dict[str, Any]) -> Change:
    """The sampler's file, of samples and processes like these."""
    host = {"k": "host", "host": "host", "domain": DOMAIN, "machine": "", "cores": 2, "memory_bytes": 1,
            "period_ns": 1, "roots": {}, "sampler": 1, "gpus": []}  # fmt: skip
    whole = {"cpu": [0, 0, 0], "memory": 0, "disk": None, "net": {"lo": [0, 0]}, "gpu": [], "p": {}, "cost": 0}
    found = [host, *({**whole, **line} if line["k"] == "sample" else line for line in lines)]
    return added("evidence/resources.jsonl", "".join(json.dumps(line) + "\n" for line in found))


def process(pid: int, start_ns: int) -> dict[str, Any]:
    """A process as the sampler describes it."""
    return {"k": "process", "pid": pid, "parent": 1, "start_ns": start_ns, "name": "java", "main_class": None,
            "executor": None}  # fmt: skip


def counted(at_ns: int, received: int) -> dict[str, Any]:
    """A rank's reading of the loopback interface."""
    lo = {"name": "lo", "counts": {"received_bytes": received}}
    return {"k": "i", "n": "transport", "t": at_ns, "a": {"after": {"at_ns": at_ns, "interfaces": [lo]}}}


def halved(name: str, pattern: str) -> Change:
    """The numbers that a pattern finds."""
    return replaced(name, pattern, lambda found: f"{found[1]}{int(found[2]) // 2}", 0)


NOISE = {"sleep_over_p50_ns": 2, "sleep_over_p99_ns": 1}
CACHE = {"asked": "as-is", "resident_bytes": 1, "total_bytes": 5028001, "before_resident_bytes": 5028002}
BEAN = {"name": "ContainerResource_container_1795263978565_0001_01_000002", "PMemUsageMBsMaxMBs": 9.0}

CASES: dict[str, tuple[str, Change]] = {
    "two stamps of a line": ("quick-run", shifted(DRIVER, "SchedulerBackend is ready", -500 * MS)),
    "order of lines": ("quick-run", shifted(DRIVER, "SchedulerBackend is ready", -9 * S)),
    "clock anchors": ("quick-run", changed(WINDOW, "anchors", 0, "wall_ns", by=lambda ns: ns + S)),
    "window and anchors": ("quick-run", changed(WINDOW, "exit_ns", by=lambda ns: ns + S)),
    "spark-submit's JVM": ("quick-run", changed(WINDOW, "exit_ns", by=lambda ns: ns - S)),
    "logs and lives of JVMs": ("quick-run", replaced("logs/containers/*_000003/jvm.log", r"^\[10036367", "[10039367")),
    "containers and their JVMs": ("quick-run", shifted(NM, "from LOCALIZING to SCHEDULED", 2 * S)),
    "window and samples": ("quick-run", sampled({"k": "sample", "t": 10024639189733})),
    "starts of processes": (
        "quick-run",
        sampled(process(22341, 10026140003043), {"k": "sample", "t": 0, "p": {"22341": [0] * 6}}),
    ),
    "start and first record": ("quick-run", replaced("spans/driver/*", r'"start_ns":10026040', '"start_ns":10026440')),
    "exits of ranks": ("native-run", replaced("spans/driver/*", r'("n":"rank exited","t":190)1', r"\g<1>0")),
    "collection after the window": ("quick-run", shifted(NM, "python-requests", -S)),
    "order of messages": ("quick-run", shifted(DRIVER, "Registered executor .* with ID 2", -S)),
    "names and layers": ("quick-run", replaced(CHIEF, '"l":"tensorflow","n":"decode"', '"l":"feed","n":"decode"')),
    "names and waits": ("quick-run", replaced(CHIEF, r',"w":\{"waits_for":\["@feeder"\]\}', "")),
    "members of collectives": ("quick-run", replaced(CHIEF, '"step","call":9', '"step","call":99')),
    "collectives": (
        "quick-run",
        replaced("spans/*_000002/spans-22969-*", '"i":16,"t":10050270898602', '"i":16,"t":10050267605700'),
    ),
    "lines of the recorder": ("quick-run", added(CHIEF, '{"k":"cost","lines":1}\n')),
    "nesting": ("quick-run", replaced(CHIEF, r'("n":"build","i":10,"p":7,"t":1004994)9', r"\g<1>8")),
    "ends of spans": ("quick-run", replaced(CHIEF, r'^\{"k":"e","i":10,"t":10049984677479\}\n', "")),
    "marks side by side": ("quick-run", replaced(CHIEF, r'("n":"first step done","t":10050)2', r"\g<1>5")),
    "marks in pairs": ("quick-run", without_lines(CHIEF, '"n":"first step done"')),
    "order of records": ("quick-run", replaced(CHIEF, r'("n":"build","i":10,"p":7,"t":1004994)9', r"\g<1>8")),
    "names of span files": ("quick-run", replaced(CHIEF, '"pid":22956', '"pid":22957', 0)),
    "names and what they tell": ("quick-run", replaced("spans/*/*", r',"a":\{"task_attempt":3\}', "")),
    "clock readings and records": (
        "quick-run",
        replaced(
            "spans/driver/*", r"10054353771105,\"wall_ns\":1795264016011", '10054653771105,"wall_ns":1795264016311'
        ),
    ),
    "loop time": ("quick-run", replaced(MARKERS, r'(\{\\"rank\\": 0,)', r'\1 \\"loop_ns\\": 1,')),
    "loop and steps": ("quick-run", replaced(CHIEF, r'("n":"first batch","t":100500)0', r"\g<1>1")),
    "losses of epochs": ("quick-run", added(CHIEF, '{"k":"i","n":"epoch done","t":1,"a":{"epoch":1,"loss":0.5}}\n')),
    "evaluations": (
        "quick-run",
        added(CHIEF, '{"k":"i","n":"epoch evaluated","t":1,"a":{"epoch":1,"samples":2,"right":1}}\n'),
    ),
    "right predictions": (
        "quick-run",
        replaced(CHIEF, r'^(\{"k":"b","l":"tensorflow","n":"predict")', r'\1,"a":{"samples":1000,"right":829}'),
    ),
    "lengths of done-markers": ("quick-run", replaced(MARKERS, r"0\.83\b", "0.8305")),
    "checkpoints": ("quick-run", changed(JOB, "checkpoint_every_steps", by=lambda steps: 30)),
    "files of checkpoints and models": ("quick-run", replaced(CHIEF, '"n":"write checkpoint"', '"n":"read model"', 0)),
    "order of quantiles": ("quick-run", as_json("evidence/noise.json", NOISE)),
    "files in the page cache": ("quick-run", as_json("evidence/page_cache.json", CACHE)),
    "bytes in the page cache": ("quick-run", as_json("evidence/page_cache.json", CACHE)),
    "memory of executors": ("quick-run", as_json("evidence/nm-containers.json", [BEAN])),
    "counters of interfaces": (
        "quick-run",
        both(
            sampled(*({"k": "sample", "t": 10050 * S + at * S, "net": {"lo": [at, at]}} for at in (0, 2))),
            both(without_lines(CHIEF, '"n":"transport"'), added(CHIEF, json.dumps(counted(10051 * S, 3)) + "\n")),
        ),
    ),
    "memory that executors kept": ("sampled-run", halved(COLLECTED, r'("executor_peak_bytes": )(\d+)')),
    "reads from disk": ("sampled-run", changed(PAGE_CACHE, "resident_bytes", by=lambda size: 0)),
    "calls of the NameNode": ("seen-run", without_lines(DRIVER, r"Call -> .*: setReplication ")),
    "closes of files": ("seen-run", without_lines(DRIVER, r"^1810372685\d+ .*Call -> .*: complete ")),
    "sums of stages": (
        "sampled-run",
        both(
            halved(EVENTS, r'("Executor Run Time":)(\d+)'),
            halved(EVENTS, r'("internal.metrics.executorRunTime","Update":)(\d+)'),
        ),
    ),
    "times of Python workers": (
        "quick-run",
        replaced("logs/containers/*_000003/stderr", r"finish = 3275 - Batches", "finish = 275 - Batches"),
    ),
    "jobs of a script": ("own-run", replaced("spans/driver/*", r'("i":119,"t":359)\d', r"\g<1>0")),
    "lines inside collections": (
        "sampled-run",
        replaced("evidence/driver-jvm.log", r"(GC\(13\) Pause .*) 25\.206ms", r"\1 925.206ms"),
    ),
    "times on a core": ("seen-run", replaced("spans/*_000003/spans-22356-*", r'"cpu":\d+', '"cpu":1', 0)),
    "calls of the driver's JVM": (
        "quick-run",
        replaced("evidence/driver-jvm.log", r"^\[10054\d{9}ns\](\[gc,heap,exit\])", r"[10052000000000ns]\1", 0),
    ),
    "order of blocks": (
        "sampled-run",
        replaced("spans/*_000003/spans-4667-*", r'("n":"put","t":147294)8(\d{7},"d":)85119', r"\g<1>9\g<2>85119"),
    ),
    "numbers of collections": ("sampled-run", without_lines("logs/containers/*_000003/jvm.log", r"\] GC\(2\)")),
    "collections in tasks": ("seen-run", without_lines("logs/containers/*_000003/jvm.log", r"\] GC\(")),
    "waits of the driver": ("quick-run", replaced("spans/driver/*", r'("i":9,"t":1005)3', r"\g<1>2")),
    "bytes of staged files": (
        "quick-run",
        replaced(
            "logs/daemons/datanode-0-clienttrace.log", "bytes: 185161, op: HDFS_READ", "bytes: 18516, op: HDFS_READ"
        ),
    ),
    "input splits": (
        "quick-run",
        replaced("logs/containers/*_000003/stderr", r"tfrecord:0\+2514000", "tfrecord:0+1257000"),
    ),
    "written bytes": ("quick-run", replaced(CHIEF, r'(/model/variables/\S*","bytes":)31645', r"\g<1>15822")),
    "lengths that Spark tells": ("quick-run", replaced(DRIVER, r"\(TID 3\) in 6547 ms", "(TID 3) in 547 ms")),
    "Spark's two logs": ("quick-run", replaced(EVENTS, r'"Finish Time":1795264012', '"Finish Time":1795264015')),
    "tasks at executors": ("quick-run", without_lines("logs/containers/*_000003/stderr", "Got assigned task 3$")),
    "metrics of tasks": ("quick-run", replaced(EVENTS, r'"Executor Run Time":\d', '"Executor Run Time":9')),
    "states in a row": ("quick-run", without_lines(RM, "State change from SUBMITTED to ACCEPTED")),
    "states of the application": ("quick-run", without_lines(RM, "State change from SUBMITTED to ACCEPTED")),
    "states of containers": ("quick-run", without_lines(NM, "from SCHEDULED to RUNNING")),
    "record and summary": ("quick-run", changed("evidence/rm-app.json", "startedTime", by=lambda ms: ms + 1)),
}


def failed(path: Path) -> set[str]:
    """The audits that fail."""
    return {one.audit for one in audit(Evidence(path)) if one.verdict == "fail"}


@pytest.mark.parametrize("name", CASES)
def test_an_audit_fails_where_its_sources_contradict_each_other(tmp_path: Path, name: str) -> None:
    """It passes, or has no source, before."""
    bundle, change = CASES[name]
    path = Path(shutil.copytree(DATA / bundle, tmp_path / "20260102T030405Z-0a1b"))
    assert name not in failed(path)
    change(path)
    assert name in failed(path)


def test_a_container_that_was_reserved_before_is_no_contradiction(tmp_path: Path) -> None:
    """The ResourceManager makes a second object of the same id when it allocates what it had reserved."""
    path = Path(shutil.copytree(DATA / "quick-run", tmp_path / "20260102T030405Z-0a1b"))
    line = r"^(\d+ \S+ \S+ \S+ container_\S+_000002 Container Transitioned from NEW) to ALLOCATED"
    replaced(RM, line, r"\1 to RESERVED\n\g<0>")(path)
    assert "states in a row" not in failed(path)
    without_lines(RM, "_000002 Container Transitioned from ALLOCATED")(path)
    assert "states in a row" in failed(path)


def test_an_emulated_machine_has_more_time_between_two_marks(tmp_path: Path) -> None:
    """One that needs 28 times as long to read its clock; what even that does not explain is found."""
    path = Path(shutil.copytree(DATA / "seen-run", tmp_path / "20260102T030405Z-0a1b"))
    later = r'("n":"SparkContext stopped","t":)(\d+)'
    for by_ns, factor, found in ((1_000_000_000, 28, False), (0, 1, True), (9_000_000_000, 28, True)):
        replaced("spans/driver/*", later, lambda mark, by=by_ns: f"{mark[1]}{int(mark[2]) + by}")(
            path
        ) if by_ns else None
        changed("evidence/noise.json", "timer_ns", by=lambda _, factor=factor: 51 * factor)(path)
        assert ("marks side by side" in failed(path)) == found, (by_ns, factor)


def test_every_audit_was_seen_to_fail() -> None:
    """Here, or where each planted inconsistency has its audits."""
    planted = (Path(__file__).parent / "test_audits.py").read_text()
    unseen = [rule.audit for rule in AUDITS if rule.audit not in CASES and not re.search(rf'"{rule.audit}"', planted)]
    assert unseen == []


# ---- what a run may do is no contradiction

INNOCENT: dict[str, tuple[str, str, Change]] = {
    "a JVM's log began anew when it was large": (
        "numbers of collections",
        "sampled-run",
        replaced("logs/containers/*_000003/jvm.log", r"\A(?:.*\n)*?(?=.*\] GC\(3\))", ""),
    ),
    "a collection beside the program was cut short": (
        "numbers of collections",
        "seen-run",
        without_lines("logs/containers/*_000003/jvm.log", r"\] GC\(6\) "),
    ),
    "a thread of the JVM ran a job while Python read what it found": (
        "jobs of a script",
        "own-run",
        both(
            replaced(DRIVER, r"(Job 2 finished: )collect", r"\1toPandas"),
            replaced("spans/driver/*", r'("i":119,"t":359)\d', r"\g<1>0"),
        ),
    ),
    "an event log is without the sums of stages": (
        "sums of stages",
        "sampled-run",
        replaced(EVENTS, r'"internal\.metrics\.', '"other.metrics.', 0),
    ),
    "a task failed": (
        "times of Python workers",
        "quick-run",
        both(
            replaced("logs/containers/*_000003/stderr", "finish = 3275 - Batches", "finish = 3 - Batches"),
            without_lines(DRIVER, r"Finished task 1.0 in stage 1.0 \(TID 3\)"),
        ),
    ),
}


@pytest.mark.parametrize("name", INNOCENT)
def test_what_a_run_may_do_is_no_contradiction(tmp_path: Path, name: str) -> None:
    """The audit passes, or says why it cannot tell."""
    rule, bundle, change = INNOCENT[name]
    path = Path(shutil.copytree(DATA / bundle, tmp_path / "20260102T030405Z-0a1b"))
    change(path)
    assert rule not in failed(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed(PAGE_CACHE, "asked", by=lambda _: "cold"), "configuration.page_cache"),
        (changed("evidence/noise.json", "load_1m", by=lambda _: 0.1), "platform.load_1m"),
    ],
)
def test_what_the_client_noted_before_the_run_is_told_twice(tmp_path: Path, change: Change, said: str) -> None:
    """By run.json and by the evidence."""
    path = Path(shutil.copytree(DATA / "sampled-run", tmp_path / "20260102T030405Z-0a1b"))
    run = Run.from_json(json.loads((path / "run.json").read_text()))
    assert list(contradicted(run, Evidence(path))) == []
    change(path)
    assert [line.partition(":")[0] for line in contradicted(run, Evidence(path))] == [said]
