"""Moments of a run, as they are seen from outside: a line in a log, a file, what a rank has recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from bench.pathologies.stage import Scene
from dlobd import spans as kinds
from dlobd.hadoop.embedded.processes import ProcessId, identify
from dlobd.selftest.log_tail import SPARK_SUBMIT, LogTail

T = TypeVar("T")

LINE_S, MARK_S = 0.002, 0.1
"""Between two looks at one log, and at the spans of all processes."""

RANKS = ("chief", "worker", "trainer")

Find = Callable[[], T | None]
"""What came, once it has come."""


@dataclass(frozen=True, slots=True)
class Moment(Generic[T]):
    """`watch` is called before the run begins: what was there before is not looked at."""

    watch: Callable[[Scene], Find[T]]
    look_s: float = MARK_S

    def wait(self, scene: Scene, find: Find[T]) -> T | None:
        """What came; None if the run ended before."""
        while not scene.over.is_set():
            if (found := find()) is not None:
                return found
            scene.over.wait(self.look_s)
        return None


def line(log: str, pattern: re.Pattern[str]) -> Moment[str]:
    """A line in a daemon's log, or in that of spark-submit; says the log's name."""

    def watch(scene: Scene) -> Find[str]:
        def logs() -> dict[str, Path]:
            if log == SPARK_SUBMIT:
                return {SPARK_SUBMIT: scene.driver_logs[-1]} if scene.driver_logs else {}
            known = scene.cluster.log_files()
            return {name: path for name, path in known.items() if re.fullmatch(log, name) and path.exists()}

        tail = LogTail(logs)
        return lambda: next((name for name, text in tail.lines() if pattern.search(text)), None)

    return Moment(watch, LINE_S)


def file(path: Path) -> Moment[str]:
    """A file is there."""
    return Moment(lambda scene: lambda: path.name if path.exists() else None)


def mark(instant: str) -> Moment[str]:
    """Any rank has passed an instant."""
    return Moment(lambda scene: lambda: instant if any(ranks(scene, instant)) else None)


def trainer(passed: str, but: str) -> Moment[ProcessId]:
    """A rank other than the chief has passed one instant, if that is told, and not yet another one."""

    def watch(scene: Scene) -> Find[ProcessId]:
        return lambda: next((one for role, one in ranks(scene, passed, but) if role != "chief"), None)

    return Moment(watch)


def ranks(scene: Scene, passed: str, but: str = "") -> Iterator[tuple[str, ProcessId]]:
    """Role and process of each rank that has recorded `passed`, and not yet `but`."""
    for path in scene.span_files():
        text = path.read_text(errors="replace")
        if passed not in text or (but and but in text):
            continue
        lines = [json.loads(each) for each in text.splitlines() if each.startswith('{"k":"process"')]
        if lines and lines[-1]["role"] in RANKS and (process := identify(lines[-1]["pid"])):
            yield lines[-1]["role"], process


IMPORTS = trainer("", kinds.TENSORFLOW_IMPORTED)
"""A trainer imports TensorFlow."""
TRAINS = trainer(kinds.FIRST_STEP_DONE, kinds.LAST_STEP_DONE)
IMPORTED, FIRST_STEP, LAST_STEP = map(mark, (kinds.TENSORFLOW_IMPORTED, kinds.FIRST_STEP_DONE, kinds.LAST_STEP_DONE))
