"""Grows a bundle: the stored quick run with more executors, more feed tasks and more steps.

At an instant of the run, each executor's feed task has begun. There a pause is inserted: all later times move.
Generated steps and their feed fill it, with the durations, attributes and waits of the stored run.

    stored run   ... feed tasks begin |                                                | end, the model is saved ...
    grown run    ... feed tasks begin | steps | they end, the next begin | steps | ... | end, the model is saved ...

Each further executor is a copy of the stored worker. One rank in 8 leaves its last get open, as a daemon thread does.
In one executor of 32, two sources contradict each other by a microsecond, so that its spans cross.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from bench.scale.form import Clock, Form, Names
from bench.scale.span_file import Record, SpanFile, Steady, used
from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.experiment.files import from_dict, key
from dlobd.hadoop.checksum import CHUNK_BYTES, CRC_BYTES

TEMPLATE = Path(__file__).parents[2] / "tests/data/quick-run"
"""The stored run: launcher tfos, two executors with a feed task each."""

STAGES = START, FEED, END = 0, 1, 2
"""Spark's stages: start of the nodes, feed, end of the nodes. Each executor has a task of each."""

MARGIN_NS = 2_000_000
"""More than the skew of any executor."""

OPEN_GETS, CROSSING = 8, 32
"""One rank in so many has an open get, and one executor in so many has crossing spans."""

_STARTING = re.compile(r"Starting task \d+\.0 in stage (\d+)\.0 \(TID (\d+)\) \(\S+?,executor (\d+),")
_LAUNCHING = re.compile(r"Launching container (container_\w+) on host \S+ for executor with ID (\d+) ")
_SPLIT = re.compile(r"input split: hdfs://[^/]+(/\S*/part-(\d+)\.tfrecord):0\+(\d+)")
_TASK = re.compile(r'(?:TID |Got assigned task |"Task ID":)(\d+)')
_PYTHON = "Starting Python task execution"
_LAUNCHER = re.compile(r"ContainerLauncher-(\d+)\]")
_OWNED = ("executor", "container", "rank", "part", "block")
"""Names in a line that show which executor it is about."""
_SHARED = {"Submitted": "unlocalized container requests", "Will request": "executor container"}


class Size(NamedTuple):
    """Executors of a run, feed tasks of each, and steps of a feed task."""

    executors: int
    tasks: int
    steps: int


@dataclass(frozen=True)
class Executor:
    """An executor; `source` is the stored executor of which it is a copy."""

    number: int
    source: int
    container: str
    rank: int
    part: int  # number of its input file
    block: int  # ID of the file's block
    pids: tuple[int, ...]

    @property
    def skew_ns(self) -> int:
        """Delay of a copy behind its source."""
        return 1000 * (self.number - self.source)

    def names(self, size: Size, stage: int = START, task: int = 0) -> dict[str, object]:
        """Return its names in texts, and those of its feed task `task`, or of its task of another stage."""
        index = self.number - 1 + (size.executors * task if stage == FEED else 0)
        tasks_before = (0, 1, 1 + size.tasks)[stage]
        return {
            "executor": self.number,
            "container": self.container,
            "rank": self.rank,
            "part": f"{self.part:05}",
            "block": self.block,
            "tid": index + tasks_before * size.executors,
            "index": index,
            "call": 1000 + self.number,
            **{f"pid{place}": pid for place, pid in enumerate(self.pids)},
        }


class Line(NamedTuple):
    """Line of a stored log, about one of the stored executors; about none if `source` is 0."""

    form: Form
    at_ns: int
    source: int
    stage: int


def grow(size: Size, out: Path, template: Path = TEMPLATE) -> Bundle:
    """Write the bundle of a run of this size into `out`; its report is that of the stored run."""
    for part in files.PARTS:
        (out / part).mkdir(parents=True)
    run = _Growth(size, template, out)
    run.logs()
    run.documents()
    for executor in run.executors:
        run.executor(executor)
    bundle, collected = Bundle(out.resolve()), json.loads((template / files.COLLECTED).read_text())
    bundle.note_collected(collected["missing"], collected["metrics"])
    bundle.seal()
    return bundle


class _Growth:
    """A run while it grows."""

    def __init__(self, size: Size, template: Path, out: Path) -> None:
        self._size, self._template, self._out = size, template, out
        window = self._json(files.WINDOW)
        anchor = window["anchors"][0]
        ahead_ns = anchor["wall_ns"] - anchor["monotonic_ns"]
        self._clock = Clock(window["exec_ns"] - 10**9, window["exit_ns"] + 10**9, ahead_ns)
        driver = self._text(files.DRIVER_STDERR)
        self._tasks = {int(m[2]): (int(m[1]), int(m[3])) for m in _STARTING.finditer(driver)}  # stage, executor
        feeds = [int(line.split()[0]) for line in driver.splitlines() if f"in stage {FEED}.0 (TID" in line]
        recorded = [self._records(path) for path in self._template.glob("spans/*/*.jsonl")]
        marks = [record for records in recorded for record in records if record["k"] == "i"]
        self._feed_ns = min(mark["t"] for mark in marks if mark["n"] == "feed exhausted") - MARGIN_NS
        self._train_ns = max(mark["t"] for mark in marks if mark["n"] == "first step done") + 2 * MARGIN_NS
        self._begin_ns, end_ns = min(feeds) - MARGIN_NS, max(feeds) + MARGIN_NS
        self._steady = Steady.of(template / "spans")
        (self._stored_bytes,) = {found["LocatedBlocks"]["fileLength"] for found in self._json(files.BLOCKS).values()}
        self._file_bytes = size.steps * self._steady.block_bytes
        self._batch = self._json(files.JOB)["batch_size"]
        self._loop_ns = size.steps * self._steady.period_ns
        self._cycle_ns = self._loop_ns + end_ns - self._begin_ns
        self._pause_ns = size.tasks * self._cycle_ns - (end_ns - self._begin_ns)
        self.executors = [*self._stored(), *self._copies()]
        self._names = {one.number: Names(self._patterns(one)) for one in self.executors if one.number == one.source}

    def _stored(self) -> Iterator[Executor]:
        blocks = self._json(files.BLOCKS)
        logs = {path.parent.name: path.read_text() for path in self._template.glob(f"{files.CONTAINER_LOGS}/*/stderr")}
        launched = [match for log in logs.values() for match in _LAUNCHING.finditer(log)]
        for number, container in sorted((int(match[2]), match[1]) for match in launched):
            split = _SPLIT.search(logs[container])
            assert split
            block = blocks[split[1]]["LocatedBlocks"]["locatedBlocks"][0]["block"]["blockId"]
            processes = [self._records(path)[0] for path in sorted(self._template.glob(f"spans/{container}/*.jsonl"))]
            rank = next(
                1 + p["index"] if p["role"] == "worker" else 0 for p in processes if p["role"] != "python-worker"
            )
            pids = sorted({one[name] for one in processes for name in ("pid", "parent")})
            yield Executor(number, number, container, rank, int(split[2]), block, tuple(pids))

    def _copies(self) -> Iterator[Executor]:
        stored = list(self._stored())
        (worker,) = (one for one in stored if one.rank)
        for number in range(len(stored) + 1, self._size.executors + 1):
            container = f"{worker.container[:-6]}{number + 1:06}"
            pids = tuple(100_000 + 10 * number + place for place in range(len(worker.pids)))
            yield Executor(number, worker.number, container, number - 1, number - 1, 2 * 10**9 + number, pids)

    def _patterns(self, one: Executor) -> dict[str, str]:
        n = one.number
        return {
            "executor": rf'(?:(?<=executor )|(?<=with ID )|(?<=executor ID )|(?<="Executor ID":")){n}(?!\d)',
            "container": one.container,
            "rank": rf'(?:(?<=rank-)|(?<="rank":)){one.rank}(?!\d)',
            "part": rf"(?<=part-){one.part:05}",
            "block": rf"(?<!\d){one.block}(?!\d)",
            "tid": r'(?:(?<=TID )|(?<=assigned task )|(?<="Task ID":)|(?<="task_attempt":))\d+',
            "index": r'(?:(?<="Index":)|(?<="Partition ID":)|(?<=partition )|(?<= task ))\d+(?=,|\.0 in stage)',
            "call": r"(?<=ContainerLauncher-)\d+(?=\])|(?<=\]: )\d+(?=: .*startContainers)",
            **{f"pid{place}": rf"(?<![\d.]){pid}(?!\d)" for place, pid in enumerate(one.pids)},
        }

    # ---- files

    def _text(self, name: str) -> str:
        return (self._template / name).read_text()

    def _json(self, name: str) -> Any:
        return json.loads(self._text(name))

    def _records(self, path: Path) -> list[Record]:
        return [json.loads(line) for line in path.read_text().splitlines()]

    def _open(self, name: str) -> TextIO:
        path = self._out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w")

    def _write(self, name: str, text: str) -> None:
        with self._open(name) as stream:
            stream.write(text)

    def _moved(self, text: str) -> str:
        """Return a text about the whole run, with the pause."""
        return Names({}).form(text, self._clock).filled({}, 0, self._pause_ns, self._feed_ns)

    # ---- logs

    def logs(self) -> None:
        """Write the logs of the driver, the ApplicationMaster and the daemons, and Spark's event log."""
        own = {one.container for one in self.executors}
        masters = [path.name for path in self._template.glob(f"{files.CONTAINER_LOGS}/*") if path.name not in own]
        names = [files.DRIVER_STDERR, *(f"{files.CONTAINER_LOGS}/{master}/stderr" for master in masters)]
        names += [f"{files.DAEMON_LOGS}/{path.name}" for path in self._template.glob(f"{files.DAEMON_LOGS}/*")]
        for name in names:
            text = self._sized(self._text(name)).replace("Containers=3", f"Containers={1 + self._size.executors}")
            for label, what in _SHARED.items():
                text = re.sub(rf"{label} \d+(?=.* {what})", f"{label} {self._size.executors}", text)
            lines = [self._line(line) for line in text.splitlines()]
            made = sorted((at for line in lines for at in self._everywhere(line)), key=lambda one: one[0])
            self._write(name, "".join(f"{line}\n" for _, line in made))
        jvms = [files.DRIVER_JVM_LOG, *(f"{files.CONTAINER_LOGS}/{master}/jvm.log" for master in masters)]
        for name in (*jvms, files.DRIVER_STDOUT):
            self._write(name, self._moved(self._text(name)))
        with self._open(files.EVENT_LOG) as log:
            for line in self._sized(self._text(files.EVENT_LOG)).splitlines():
                whole = not re.search("ListenerTaskEnd|ListenerBlockManagerAdded", line)
                log.writelines(f"{made}\n" for _, made in self._everywhere(self._line(line, whole)))

    def _sized(self, text: str) -> str:
        """Return a text with the size of the grown input files."""
        before, after = self._stored_bytes, self._file_bytes
        text = text.replace(f":0+{before}", f":0+{after}").replace(f'Read":{before}', f'Read":{after}')
        return text.replace(f"bytes: {_sent(before)}, op: HDFS_READ", f"bytes: {_sent(after)}, op: HDFS_READ")

    def _line(self, text: str, whole: bool = False) -> Line:
        """Return a line; `whole`: it is about the whole run."""
        task = None if whole else _TASK.search(text)
        stage, source = self._tasks[int(task[1])] if task else (START, 0)
        if task is None and not whole:
            about = (n for n, names in self._names.items() if any(re.search(names.patterns[of], text) for of in _OWNED))
            launcher = _LAUNCHER.search(text)
            source = 1 + int(launcher[1]) if launcher else next(about, 0)
        form = (self._names[source] if source else Names({})).form(text, self._clock)
        # the audit and the DataNode's trace of the feed task's read
        read = task is None and source and re.search("cmd=open|HDFS_READ", text) and form.at_ns > self._begin_ns
        return Line(form, form.at_ns, source, FEED if read else stage)

    def _everywhere(self, line: Line) -> Iterator[tuple[int, str]]:
        """Yield a line of a shared log, with its time, for each executor and each task that it is about."""
        if not line.source:
            yield self._at(line.at_ns), line.form.filled({}, 0, self._pause_ns, self._feed_ns)
        for executor in self.executors if line.source else ():
            if executor.source == line.source:
                yield from self._for(line, executor)

    def _for(self, line: Line, executor: Executor) -> Iterator[tuple[int, str]]:
        """Yield a line about an executor, for each of its tasks that it is about."""
        if line.stage != FEED:
            names = executor.names(self._size, line.stage)
            text = line.form.filled(names, executor.skew_ns, self._pause_ns, self._feed_ns)
            yield self._at(line.at_ns) + executor.skew_ns, text
            return
        for task in range(self._size.tasks):
            by_ns = executor.skew_ns + task * self._cycle_ns
            text = line.form.filled(executor.names(self._size, FEED, task), by_ns, self._loop_ns, self._feed_ns)
            yield line.at_ns + by_ns + (self._loop_ns if line.at_ns > self._feed_ns else 0), text

    def _at(self, at_ns: int) -> int:
        return at_ns + (self._pause_ns if at_ns > self._feed_ns else 0)

    # ---- records

    def documents(self) -> None:
        """Write the JSON documents, the resource samples, and the driver's spans."""
        made = {
            files.JOB: self._json(files.JOB) | self._settings | {"steps": self._size.tasks * self._size.steps},
            files.RUN: self._record(),
            files.MARKERS: dict(self._markers()),
            files.RM_APPLICATION: self._json(files.RM_APPLICATION) | {"memorySeconds": self._memory_seconds()},
            files.NM_CONTAINERS: list(self._containers()),
            **self._inputs(),
        }
        for path in self._template.glob("evidence/*.json"):
            name = f"evidence/{path.name}"
            made.setdefault(name, self._json(name))
        del made[files.COLLECTED]
        for name, document in made.items():
            text = json.dumps(document)
            self._write(name, text if name == files.MARKERS else self._moved(text))
        with self._open(files.RESOURCES) as stream:
            stream.writelines(json.dumps(line) + "\n" for line in self._samples())
        for path in self._template.glob(f"{files.DRIVER_SPANS}/*"):
            with self._open(f"{files.DRIVER_SPANS}/{path.name}") as stream:
                self._driver(SpanFile(stream, 1), self._records(path))

    @property
    def _settings(self) -> Record:
        samples = self._size.executors * self._size.steps * self._batch
        shape = {"dataset": "synthetic", "synthetic_shape": "28x28"}
        return {**shape, "workers": self._size.executors, "epochs": self._size.tasks, "train_samples": samples}

    def _record(self) -> Record:
        run = self._json(files.RUN)
        run["configuration"] |= self._settings
        run["experiment_key"] = key(from_dict(run["configuration"], "the grown run"))
        return {**run, "run_id": self._out.name}

    def _markers(self) -> Iterator[tuple[str, str]]:
        stored = {name: json.loads(text) for name, text in self._json(files.MARKERS).items()}
        steps = self._size.tasks * self._size.steps
        losses = stored["rank-0.json"]["losses"]
        falling = np.interp(np.linspace(0, len(losses) - 1, steps), np.arange(len(losses)), losses).round(6).tolist()
        for rank in (executor.rank for executor in self.executors):
            marker = stored[f"rank-{min(rank, 1)}.json"]
            own = {"rank": rank, "index": max(0, rank - 1), "steps": steps, "samples": steps * self._batch}
            own |= {"losses": falling, "loop_ns": marker["loop_ns"] + self._pause_ns}
            yield f"rank-{rank}.json", json.dumps(marker | own)

    def _memory_seconds(self) -> int:
        """Return the charge of YARN: each container's memory times its life."""
        log = self._text(f"{files.DAEMON_LOGS}/resourcemanager.log")
        total = 0
        for match in re.finditer(r"Assigned container (\w+) of capacity <memory:(\d+),", log):
            states = [line for line in log.splitlines() if f"{match[1]} Container Transitioned" in line]
            begun, ended = (int(line.split()[0]) for line in states if re.search("to (ALLOCATED|COMPLETED)", line))
            stored = [one.number for one in self.executors if one.container == match[1]]
            count = sum(one.source in stored for one in self.executors) or 1  # the ApplicationMaster
            total += count * int(match[2]) * (ended - begun + self._pause_ns)
        return total // 10**9

    def _containers(self) -> Iterator[Record]:
        for bean in self._json(files.NM_CONTAINERS):
            line = self._line(json.dumps(bean))
            own = [one for one in self.executors if one.source == line.source]
            for names in [one.names(self._size) for one in own] or [{}]:
                yield json.loads(line.form.filled(names))

    def _inputs(self) -> Record:
        stored, sums = self._json(files.BLOCKS), self._json(files.CHECKSUMS)
        blocks: Record = {}
        checksums: dict[str, Record] = {of: {} for of in sums}
        for path, located in stored.items():
            text = json.dumps({path: located}).replace(f": {self._stored_bytes}", f": {self._file_bytes}")
            line = self._line(text)
            for one in self.executors:
                if one.source == line.source:
                    (own,) = made = json.loads(line.form.filled(one.names(self._size)))
                    blocks |= made
                    for of, found in checksums.items():
                        found[own] = sums[of][path]
        return {files.BLOCKS: blocks, files.CHECKSUMS: checksums}

    def _samples(self) -> Iterator[Record]:
        """Yield the resource samples. In the pause the counters stay as they are."""
        host, *lines = self._records(self._template / files.RESOURCES)
        yield host
        last: Record = {}
        for line in lines:
            late = line.get("t", line.get("start_ns") or 0) > self._feed_ns
            if late and last:
                for at_ns in range(last["t"], line["t"] + self._pause_ns, host["period_ns"])[1:]:
                    yield {**last, "t": at_ns}
                last = {}
            elif line["k"] == "sample" and not late:
                last = line
            moved = {name: line[name] + self._pause_ns for name in ("t", "start_ns") if late and line.get(name)}
            yield {**line, **moved}

    # ---- span files

    def _driver(self, file: SpanFile, records: Sequence[Record]) -> None:
        for record in records:
            if record["k"] == "i" and record["n"] == "rank is done":
                for rank in (one.rank for one in self.executors if min(one.rank, 1) == record["a"]["rank"]):
                    file.add({**record, "a": {"rank": rank}}, self._moved)
            else:
                file.add(self._longer(record, self._feed_ns), self._moved)

    def _longer(self, record: Record, after_ns: int) -> Record:
        """Return a record; a span around the pause includes it."""
        if record["k"] == "s" and record["t"] <= after_ns < record["t"] + record["d"]:
            return {**record, "d": record["d"] + self._pause_ns}
        return record

    def executor(self, executor: Executor) -> None:
        """Write the logs and the span files of an executor."""
        source = self.executors[executor.source - 1]
        before, after = (f"{files.CONTAINER_LOGS}/{one.container}" for one in (source, executor))
        jvm = Names({}).form(self._text(f"{before}/jvm.log"), self._clock)
        self._write(f"{after}/jvm.log", jvm.filled({}, executor.skew_ns, self._pause_ns, self._feed_ns))
        with self._open(f"{after}/stderr") as log:
            for lines in self._log(f"{before}/stderr", executor.number % CROSSING == CROSSING - 1):
                made = zip(*(list(self._for(line, executor)) for line in lines), strict=True)
                log.writelines(f"{text}\n" for of_task in made for _, text in of_task)
        for path in sorted(self._template.glob(f"spans/{source.container}/*.jsonl")):
            records = self._records(path)
            name = self._mover(executor)(path.name)
            with self._open(f"spans/{executor.container}/{name}") as stream:
                file = SpanFile(stream, next(record["i"] for record in records if record["k"] in ("s", "b")))
                if any(record.get("n") == "feed task" for record in records):
                    self._feeder(file, records, executor)
                elif any(record.get("n") == "first step" for record in records):
                    self._trainer(file, records, executor)
                else:
                    for record in records:
                        file.add(self._longer(record, self._feed_ns), self._mover(executor))

    def _log(self, name: str, crosses: bool) -> list[list[Line]]:
        """Return the lines of an executor's log: those of its feed task together."""
        lines: list[Line] = []
        for text in self._sized(self._text(name)).splitlines():
            line = self._line(text)
            if crosses and line.stage == FEED and _PYTHON in text:  # before the call that ended before it
                line = self._line(f"{lines[-1].at_ns - 1000}{text[14:]}")
            lines.append(line)
        feed = [line for line in lines if line.stage == FEED]
        first = lines.index(feed[0])
        after = [line for line in lines[first:] if line.stage != FEED]
        return [*([line] for line in lines[:first]), feed, *([line] for line in after)]

    def _mover(
        self,
        executor: Executor,
        task: int = 0,
        by_ns: int = 0,
        pause_ns: int | None = None,
        after_ns: int | None = None,
    ) -> Callable[[str], str]:
        """Return a function that turns a text about the source of an executor into a text about the executor."""
        names, patterns = executor.names(self._size, FEED, task), self._names[executor.source]
        added_ns = self._pause_ns if pause_ns is None else pause_ns
        since_ns = self._feed_ns if after_ns is None else after_ns
        return lambda text: patterns.form(text, self._clock).filled(names, executor.skew_ns + by_ns, added_ns, since_ns)

    def _feeder(self, file: SpanFile, records: Sequence[Record], executor: Executor) -> None:
        """Write the spans of a Python worker: its feed tasks with their blocks."""
        own = next(record["i"] for record in records if record.get("n") == "feed task")
        task_lines, others = [], []
        seen: set[str] = set()
        at_ns = 0
        for record in records:
            at_ns = record.get("t", at_ns)
            if record.get("n") == "feed exhausted":
                task_lines.append({**record, "a": {**record["a"], "blocks": self._size.steps}})
            elif own not in (record.get("i"), record.get("p")):
                others.append((at_ns, record))
            elif record.get("n") not in seen or record["k"] == "e":  # the first block begins before the pause
                seen.add(record.get("n", ""))
                task_lines.append(record)
        move = self._mover(executor)
        for _, record in (one for one in others if one[0] <= self._feed_ns):
            file.add(record, move)
        for task in range(self._size.tasks):
            by_ns = task * self._cycle_ns
            move = self._mover(executor, task, by_ns, self._loop_ns)
            for record in (one for one in task_lines if one["t"] <= self._feed_ns):
                file.add(record, move)
            begin_ns = self._feed_ns + by_ns + self._steady.period_ns
            file.blocks(self._steady, self._size.steps - 1, begin_ns, own)
            for record in (one for one in task_lines if one["t"] > self._feed_ns):
                file.add(record, move)
        move = self._mover(executor)
        for _, record in (one for one in others if one[0] > self._feed_ns):
            file.add(self._later_use(record), move)

    def _trainer(self, file: SpanFile, records: Sequence[Record], executor: Executor) -> None:
        """Write the spans of a rank: its steps, and those of its reader."""
        move = self._mover(executor, after_ns=self._train_ns)
        within = tuple(next(r["i"] for r in records if r.get("n") == name) for name in ("read ahead", "trainer"))
        open_get = executor.rank % OPEN_GETS == OPEN_GETS - 1
        seen: set[str] = set()
        ended = {within[0]} if open_get else set()  # IDs of spans whose ends are left out
        trained, at_ns = False, 0
        for record in records:
            at_ns = record.get("t", at_ns)
            if at_ns > self._train_ns and not trained:
                trained = True
                self._train(file, executor.rank, (within[0], within[1]))
                if open_get:
                    file.add({**_OPEN_GET, "p": within[0], "t": self._train_ns + self._pause_ns - 100_000})
            name = record.get("n", "")
            if record["k"] == "e" and record["i"] in ended:
                continue
            if name in ("get", "decode", "step"):
                if name in seen or name == "step":
                    ended.add(record["i"])
                    continue
                seen.add(name)
            if record["k"] == "process":
                record = {**record, "index": max(0, executor.rank - 1)}
            elif name == "epoch done":
                record = {**record, "a": {**record["a"], "epoch": self._size.tasks}}
            file.add(self._later_use(record) if trained else record, move)

    def _train(self, file: SpanFile, rank: int, within: tuple[int, int]) -> None:
        """Write the steps of a rank. `within`: stored IDs of reader and trainer."""
        for task in range(self._size.tasks):
            begin_ns, first = self._train_ns + task * self._cycle_ns, task * self._size.steps
            idle_ns = self._cycle_ns - self._loop_ns if task else 0
            if task:  # the trainer waits for its reader, which waits for the feed
                since_ns = begin_ns - idle_ns
                file.add({"k": "i", "n": "epoch done", "t": since_ns, "a": {"epoch": task, "loss": 1.0}})
                file.add({**_AWAIT, "p": within[1], "t": since_ns, "d": idle_ns})
            skipped = int(task == 0)  # the first step is a stored one
            steps = range(first + skipped, first + self._size.steps)
            file.steps(self._steady, steps, begin_ns + skipped * self._steady.period_ns, rank, within, idle_ns)

    def _later_use(self, record: Record) -> Record:
        return used(record, self._pause_ns) if record["k"] == "u" else record


def _sent(size: int) -> int:
    """Return the bytes that a DataNode sends for a file: with checksums."""
    return size + CRC_BYTES * -(-size // CHUNK_BYTES)


_AWAIT = {"k": "s", "i": -2, "l": "feed", "n": "await block", "w": {"waits_for": ["@reader"]}}
_OPEN_GET = {"k": "b", "i": -1, "l": "feed", "n": "get", "w": {"waits_for": ["@feeder"]}, "th": "dlobd-reader"}
