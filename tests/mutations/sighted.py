"""Mutations by who wrote the checks; `blind` has forty by somebody who had not seen them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.mutations.edits import both, changed, replaced, shifted, without, without_lines
from tests.mutations.mutation import Mutation

S, MS = 10**9, 10**6
QUICK, OWN, NATIVE, SAMPLED = "quick-run", "own-run", "native-run", "sampled-run"
WINDOW, MARKERS, JOB = "evidence/window.json", "evidence/markers.json", "evidence/job.json"
RM, NM = "logs/daemons/resourcemanager.log", "logs/daemons/nodemanager-1.log"
NN, AUDIT = "logs/daemons/namenode.log", "logs/daemons/namenode-audit.log"
DRIVER, AM, EXECUTOR = "logs/driver.stderr", "logs/containers/*_000001/stderr", "logs/containers/*_000003/stderr"
DRIVER_SPANS, CHIEF = "spans/driver/*.jsonl", "spans/*_000003/spans-22956-*.jsonl"
FEEDER = "spans/*_000003/spans-22996-*.jsonl"
EVENTS, REST = "evidence/event-log.jsonl", "evidence/rm-app.json"


def record_of(name: str, number: int = 0, by_ns: int = 0) -> Any:
    """Moves the begin or end line of the span of a name: of its begin if `number` is even, of its end if odd."""

    def edit(path: Path, glob: str = CHIEF) -> None:
        file = next(iter(path.glob(glob)))
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        begin = next(line for line in lines if line["k"] == "b" and line["n"] == name)
        moved = begin if number % 2 == 0 else next(x for x in lines if x["k"] == "e" and x["i"] == begin["i"])
        moved["t"] += by_ns
        file.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))

    return edit


def end_of(name: str, by_ns: int, glob: str = CHIEF) -> Any:
    """Moves the end of a span."""
    return lambda path: record_of(name, 1, by_ns)(path, glob)


def without_span(name: str, glob: str = CHIEF) -> Any:
    """Removes all spans of a name, with their ends, and counts the ids that are left anew, so that none is missing."""

    def edit(path: Path) -> None:
        for file in path.glob(glob):
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            gone = {line["i"] for line in lines if line["k"] == "b" and line["n"] == name}
            if not gone:
                raise LookupError(name)
            kept = [line for line in lines if line.get("i") not in gone]
            ids = sorted({line["i"] for line in kept if line["k"] == "b"})
            renamed = {old: ids[0] + place for place, old in enumerate(ids)}
            for line in kept:
                for key in ("i", "p"):
                    if key in line:
                        line[key] = renamed.get(line[key], 0)
            file.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in kept))

    return edit


def window_moved(end: str, anchor: int, by_ns: int) -> Any:
    """Moves an end of the window, and both clocks of the anchor beside it."""

    def by(old: int) -> int:
        return old + by_ns

    clocks = (changed(WINDOW, "anchors", anchor, clock, by=by) for clock in ("monotonic_ns", "wall_ns"))
    return both(changed(WINDOW, end, by=by), *clocks)


def without_whole_span(name: str, glob: str = "spans/*/*.jsonl") -> Any:
    """Removes the last span of a name from the file that has it, where no id comes after it."""

    def edit(path: Path) -> None:
        for file in sorted(path.glob(glob)):
            lines = file.read_text().splitlines(keepends=True)
            if any(f'"n":"{name}"' in line for line in lines):
                last = max(number for number, line in enumerate(lines) if line.startswith('{"k":"s"'))
                file.write_text("".join([*lines[:last], *lines[last + 1 :]]))
                return
        raise LookupError(name)

    return edit


def run_json(*keys: Any, value: Any) -> Any:
    """Sets one value of run.json that is not computed from the evidence."""
    return changed("run.json", *keys, by=lambda old: value)


def whole_line(pattern: str, by_ns: int, name: str = DRIVER) -> Any:
    """Moves both stamps of the lines in which a pattern is found."""

    def moved(line: re.Match[str]) -> str:
        seconds, millis = (int(part) for part in line[3].split("."))
        total = seconds * 1000 + millis + by_ns // MS
        return f"{int(line[1]) + by_ns} {line[2]}{total // 1000:02}.{total % 1000:03}{line[4]}"

    return replaced(name, rf"^(\d{{6,}}) (\S+:)(\d\d\.\d{{3}})( .*(?:{pattern}))", moved)


MUTATIONS = (
    Mutation("the window ends 2 s earlier", QUICK, changed(WINDOW, "exit_ns", by=lambda ns: ns - 2 * S),
             "the JVM's own exit"),
    Mutation("the window ends 3 s later", QUICK, changed(WINDOW, "exit_ns", by=lambda ns: ns + 3 * S),
             "the client's last clock anchor"),
    Mutation("exec is 2 s later", QUICK, changed(WINDOW, "exec_ns", by=lambda ns: ns + 2 * S),
             "the JVM's start, and started_ns"),
    Mutation("exec is 4 s earlier", QUICK, changed(WINDOW, "exec_ns", by=lambda ns: ns - 4 * S),
             "the client's first clock anchor"),
    Mutation("spark-submit is started 2 s later", QUICK, changed(WINDOW, "started_ns", by=lambda ns: ns + 2 * S),
             "the JVM's start"),
    Mutation("the native window ends 100 ms earlier", NATIVE, changed(WINDOW, "exit_ns", by=lambda ns: ns - 100 * MS),
             "the parent's last record"),
    Mutation("the import of TensorFlow is HDFS's", QUICK,
             replaced(CHIEF, '"l":"tensorflow","n":"import tensorflow"', '"l":"hdfs","n":"import tensorflow"'),
             "the table of names"),
    Mutation("the checkpoint's write is TensorFlow's", QUICK,
             replaced("spans/*/*.jsonl", '"l":"hdfs","n":"write checkpoint"', '"l":"tensorflow","n":"write checkpoint"',
                      0),
             "job.json: the files are in HDFS"),
    Mutation("native reading is HDFS's", NATIVE,
             replaced("spans/*/*.jsonl", '"l":"tensorflow","n":"read input"', '"l":"hdfs","n":"read input"', 0),
             "job.json: the files are local"),
    Mutation("all span files of executors are gone", QUICK, without("spans/container_*/*.jsonl"),
             "the logs of the executors' Python workers"),
    Mutation("the driver's span file is gone", QUICK, without(DRIVER_SPANS), "the driver's log"),
    Mutation("the chief's span file is gone", QUICK, without(CHIEF), "its done-marker"),
    Mutation("the feed task's span file is gone", QUICK, without(FEEDER), "the trainer's gets"),
    Mutation("the native worker's span file is gone", NATIVE, without("spans/rank-1/*.jsonl"), "its done-marker"),
    Mutation("the ResourceManager's log is gone", QUICK, without(RM), "REST and the driver's log"),
    Mutation("the NodeManagers' logs are gone", QUICK, without("logs/daemons/nodemanager-*.log"),
             "the ResourceManager's log"),
    Mutation("an executor's log is gone", QUICK, without(EXECUTOR), "the driver's log of its tasks"),
    Mutation("the AM's acquisition is not logged", QUICK,
             without_lines(RM, r"_000001 Container Transitioned from ALLOCATED to ACQUIRED"), "the states around it"),
    Mutation("the containers' RUNNING is not logged", QUICK,
             without_lines("logs/daemons/nodemanager-*.log", "transitioned from SCHEDULED to RUNNING"),
             "the states around it"),
    Mutation("the AM is registered 1 s earlier", QUICK,
             whole_line("LAUNCHED to RUNNING on event", -S, RM), "the AM's own line Registering"),
    Mutation("the executor connects before it is there", QUICK,
             shifted(DRIVER, "Registered executor .* with ID 2", -S),
             "the executor's line Connecting to driver"),
    Mutation("the driver is ready 500 ms earlier", QUICK, shifted(DRIVER, "SchedulerBackend is ready", -500 * MS),
             "its wall-clock stamp"),
    Mutation("the first step ends 200 ms earlier", QUICK, end_of("first step", -200 * MS), "the mark first step done"),
    Mutation("the import ends 3 s earlier", QUICK, end_of("import tensorflow", -3 * S),
             "the mark TensorFlow imported"),
    Mutation("the evaluation is not recorded", QUICK, without_span("evaluate"), "the mark evaluated"),
    Mutation("training ends earlier in both marks", QUICK,
             replaced("spans/*/*.jsonl", r'("n":"last step done","t":)(\d+)',
                      lambda found: f"{found[1]}{int(found[2]) - 500 * MS}", 0),
             "the last step and checkpoint"),
    Mutation("a better accuracy", QUICK, replaced(MARKERS, r'(\\"accuracy\\": )0\.83', r"\g<1>0.9375"),
             "the length of the done-marker by the chief's write"),
    Mutation("one rank lost better", QUICK,
             replaced(MARKERS, r'(rank-1.*\\"losses\\": .*)0\.5177327990531921', r"\g<1>0.4177327990531921"),
             "the other rank's losses"),
    Mutation("get waits for nobody", QUICK, replaced("spans/*/*.jsonl", r',"w":\{"waits_for":\["@feeder"\]\}', "", 0),
             "the table of names: a get waits"),
    Mutation("steps are no rendezvous", QUICK,
             replaced("spans/*/*.jsonl", r',"w":\{"rendezvous":"step","call":(\d+)\}', r',"w":{"call":\1}', 0),
             "the exchange is inside of the step"),
    Mutation("a poll has no cause", QUICK,
             replaced(DRIVER_SPANS, r',"cause":"done-marker poll \(0.1 s\)","cause_period_ns":100000000', ""),
             "the table of names: that wait polls"),
    Mutation("no close was refused", QUICK, without_lines(NN, "COMMITTED but not COMPLETE"), ""),
    Mutation("a task took 2 s less", QUICK,
             whole_line(r"Finished task 1.0 in stage 1.0 \(TID 3\)", -2 * S),
             "its own words and the event log"),
    Mutation("another version of Spark", QUICK, run_json("versions", "pyspark", value="4.2.0"), "the logs of Spark"),
    Mutation("another version of TensorFlow", QUICK, run_json("versions", "tensorflow", value="2.20.0"),
             "the mark TensorFlow imported"),
    Mutation("another kernel", QUICK, run_json("platform", "kernel", value="6.99.1"), "the driver's log: OS info"),
    Mutation("another command", QUICK,
             changed("run.json", "command", by=lambda words: [w.replace("512m", "2048m") for w in words]),
             "configuration"),
    Mutation("YARN's record is 1 s shorter", QUICK,
             both(changed(REST, "finishedTime", by=lambda ms: ms - 1000), changed(REST, "elapsedTime",
                                                                                  by=lambda ms: ms - 1000)),
             "the ResourceManager's summary"),
    Mutation("a container was localised 300 ms earlier", OWN,
             shifted("logs/daemons/nodemanager-*.log", "from LOCALIZING to SCHEDULED", -300 * MS),
             "its wall-clock stamp"),
    Mutation("a window 4 s longer, clock and all", SAMPLED, window_moved("exec_ns", 0, -4 * S),
             "the sampler's first reading, and the kernel's start of spark-submit"),
    Mutation("a window that ends 3 s later, clock and all", SAMPLED, window_moved("exit_ns", 1, 3 * S),
             "the sampler's last reading"),
    Mutation("a window that ends 60 ms earlier", SAMPLED, changed(WINDOW, "exit_ns", by=lambda ns: ns - 60 * MS),
             "the JVM's own exit"),
    Mutation("the exchange went by eth0", SAMPLED,
             both(replaced("spans/*/*.jsonl", r'"name":"eth0"', '"name":"lo0"', 0),
                  replaced("spans/*/*.jsonl", r'"name":"lo"', '"name":"eth0"', 0),
                  replaced("spans/*/*.jsonl", r'"name":"lo0"', '"name":"lo"', 0)),
             "the sampler's counters of loopback"),
    Mutation("twice the bytes on loopback", SAMPLED,
             replaced("spans/*/*.jsonl", r'("after":.*?"name":"lo".*?"sent_bytes":)(\d+)(,"received_bytes":)(\d+)',
                      lambda found: f"{found[1]}{int(found[2]) + 10**9}{found[3]}{int(found[4]) + 10**9}", 0),
             "the sampler's counters of loopback"),
    Mutation("a loop that took half as long", SAMPLED,
             replaced(MARKERS, r'(\\"loop_ns\\": )(\d+)', lambda found: f"{found[1]}{int(found[2]) // 2}", 0),
             "the marks of the first batch and last step"),
    Mutation("a lower loss at both ranks", SAMPLED,
             replaced(MARKERS, r"0\.5177327990531921", "0.1177327990531921", 0), "the mean that each rank marked"),
    Mutation("a span cost a tenth", SAMPLED, changed("evidence/span_cost.json", "span_ns", by=lambda ns: ns // 10),
             "the lowest of its repeats"),
    Mutation("a quieter machine", SAMPLED, changed("evidence/noise.json", "sleep_over_p99_ns", by=lambda ns: ns // 10),
             "the median of the same measurement"),
    Mutation("half of the files in memory", SAMPLED,
             changed("evidence/page_cache.json", "total_bytes", by=lambda found: 2 * found), "the files' lengths"),
    Mutation("smaller executors", SAMPLED,
             changed("evidence/collected.json", "metrics", "executor_peak_bytes", by=lambda found: found // 2),
             "the NodeManagers' records of the containers"),
    Mutation("more cores", SAMPLED, run_json("platform", "cores", value=64), "the sampler"),
    Mutation("another Java", SAMPLED, run_json("versions", "java", value="21.0.4"), "the driver's log"),
    Mutation("another day", SAMPLED, run_json("started_at", value="2026-11-24T00:18:08.162+00:00"), "the run's id"),
    Mutation("fewer spans were recorded", SAMPLED, without_whole_span("predict"), "the recorder's own count of lines"),
    Mutation("the driver's Python began 150 ms later", SAMPLED,
             replaced(DRIVER_SPANS, r'("role":"driver".*"start_ns":)(\d+)',
                      lambda found: f"{found[1]}{int(found[2]) + 150 * MS}"), "the sampler"),
    Mutation("the JVM of an executor began 1 s later", SAMPLED,
             replaced("logs/containers/*_000003/jvm.log", r"^\[(\d+)",
                      lambda found: f"[{int(found[1]) + S}"), "the order of its own log, and its first line"),
)  # fmt: skip
