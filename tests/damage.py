"""Damage to the files of captured bundles, and what commands make of it."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.errors import DlobdError
from dlobd.evidence.evidence import Evidence
from dlobd.experiment.own_job import from_dict
from dlobd.measures.frames import RunBundle
from dlobd.recompute import computed as record
from dlobd.recompute.verification import verify
from dlobd.report.export.otlp import otlp
from dlobd.report.page.data import document, source
from dlobd.report.page.render import render
from dlobd.timeline.assemble import assemble
from tests.captured import DATA, copy_of
from tests.page_traces import trace_events

DEADLINE_S = 60
"""Far more than a result takes: hashing a file of 2 GiB takes 5 s."""

NESTED = 100_000
VALUES = ("x", "", None, [], {}, -1, 0, True, 10**40, 2**62, 1e308, float("nan"), ["a"], {"a": 1}, [[1]])


def replaced(make: Callable[[Path], object]) -> Callable[[Path, random.Random], None]:
    def damage(path: Path, _: random.Random) -> None:
        path.unlink()
        make(path)

    return damage


def written(content: str | bytes) -> Callable[[Path, random.Random], None]:
    return lambda path, _: path.write_bytes(content if isinstance(content, bytes) else content.encode()) and None


def cut(path: Path, _: random.Random) -> None:
    os.truncate(path, path.stat().st_size // 2)


def doubled(path: Path, _: random.Random) -> None:
    path.write_bytes(path.read_bytes() * 2)


def flipped(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(10 if content else 0):
        content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(content)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of each member of a JSON value."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:20]) if isinstance(value, list) else ()
    for key, item in items:
        yield from leaves(item, (*path, key))


def mistyped(path: Path, chance: random.Random) -> None:
    """Gives members of JSON values, or of the values of some lines, another type; or deletes them."""
    lines = path.read_text().split("\n") if path.suffix == ".jsonl" else [path.read_text()]
    for _ in range(3):
        number = chance.randrange(len(lines))
        try:
            value = json.loads(lines[number])
        except ValueError:
            continue
        if places := list(leaves(value)):
            *parents, last = chance.choice(places)
            inner = value
            for key in parents:
                inner = inner[key]
            if chance.random() < 0.2:
                del inner[last]
            else:
                inner[last] = chance.choice(VALUES)
        lines[number] = json.dumps(value)
    path.write_text("\n".join(lines))


DAMAGE: dict[str, Callable[[Path, random.Random], None]] = {
    "directory": replaced(Path.mkdir),
    "fifo": replaced(os.mkfifo),
    "symlink loop": replaced(lambda path: path.symlink_to(path.name)),
    "link to a device": replaced(lambda path: path.symlink_to("/dev/zero")),
    "dangling link": replaced(lambda path: path.symlink_to("/nowhere/at/all")),
    "empty": written(b""),
    "half": cut,
    "twice": doubled,
    "binary": written(bytes(range(256)) * 20),
    "some bytes": flipped,
    "list": written("[]"),
    "string": written('"x"'),
    "null": written("null"),
    "number": written("7"),
    "object": written("{}"),
    "deep list": written("[" * NESTED + "]" * NESTED),
    "deep object": written('{"a":' * NESTED + "1" + "}" * NESTED),
    "other types": mistyped,
}


def names(run: str, kind: str) -> list[str]:
    """The files of a bundle to which a kind of damage applies."""
    found = [*Bundle(DATA / run).files(), files.HASHES]
    return [name for name in found if name.endswith((".json", ".jsonl"))] if kind == "other types" else found


@contextmanager
def deadline() -> Iterator[None]:
    def expired(*_: object) -> None:
        raise TimeoutError(f"no result within {DEADLINE_S} s")

    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(DEADLINE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@cache
def experiment(run: str) -> Any:
    return from_dict(asdict(Bundle(DATA / run).read().configuration))


def exported(bundle: Bundle) -> str:
    evidence = Evidence(bundle.path)
    trace = assemble(evidence)
    frames = RunBundle(bundle.path)
    for table in (frames.spans, frames.steps, frames.epochs):
        table()
    return json.dumps(trace_events(trace, evidence.resources)) + "".join(otlp(trace, "run", evidence.anchors[0]))


COMMANDS: tuple[Callable[[Bundle, str], object], ...] = (
    lambda bundle, run: json.dumps(record.computed(bundle, experiment(run)).to_json()),
    lambda bundle, run: exported(bundle),
    lambda bundle, run: render(document([source(bundle)])),
    lambda bundle, run: verify(bundle, ""),
    lambda bundle, run: bundle.read(),
)


def check(run: str, kind: str, name: str, directory: Path) -> None:
    """Damages one file and runs what `trace`, `export`, `report`, `verify` and `show` run."""
    bundle = Bundle(copy_of(run, directory))
    DAMAGE[kind](bundle.path / name, random.Random(f"{run} {kind} {name}"))
    with deadline():
        for command in COMMANDS:
            try:
                command(bundle, run)
            except DlobdError:
                continue  # one line of error
