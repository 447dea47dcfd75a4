"""A damaged bundle gives a result or one line of error, within seconds: never another exception, never a hang."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dlobd.attribution import record
from dlobd.attribution.frames import RunBundle
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.lanes.assemble import assembled
from dlobd.attribution.verification import verify
from dlobd.bundle import files, reading
from dlobd.bundle.store import Bundle
from dlobd.errors import DlobdError
from dlobd.experiment.own_job import from_dict
from dlobd.report.export.otlp import otlp
from dlobd.report.export.perfetto import trace_events
from dlobd.report.page.data import document
from dlobd.report.page.render import render
from dlobd.report.page.source import source

DATA = Path(__file__).parents[1] / "data"
RUNS = ("quick-run", "own-run", "native-run", "killed-trainer", "sampled-run", "seen-run")
DEADLINE_S = 60
"""Far more than a result takes: hashing a file of 2 GiB takes 5 s."""

NESTED = 100_000
VALUES = ("x", "", None, [], {}, -1, 0, True, 10**40, 2**62, 1e308, float("nan"), ["a"], {"a": 1}, [[1]])
SAMPLE = 15
"""Cases of the default run, of about 2,000."""


def replaced(make: Callable[[Path], object]) -> Callable[[Path, random.Random], None]:
    """Puts something else in the place of a file."""

    def damage(path: Path, _: random.Random) -> None:
        path.unlink()
        make(path)

    return damage


def written(content: str | bytes) -> Callable[[Path, random.Random], None]:
    """Replaces the content of a file."""
    return lambda path, _: path.write_bytes(content if isinstance(content, bytes) else content.encode()) and None


def cut(path: Path, _: random.Random) -> None:
    """Leaves the first half of a file."""
    os.truncate(path, path.stat().st_size // 2)


def doubled(path: Path, _: random.Random) -> None:
    """Appends a file to itself."""
    path.write_bytes(path.read_bytes() * 2)


def flipped(path: Path, chance: random.Random) -> None:
    """Replaces ten random bytes."""
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


CASES = [(run, kind, name) for run in RUNS for kind in DAMAGE for name in names(run, kind)]
SAMPLED = random.Random(30).sample(CASES, SAMPLE)


@contextmanager
def deadline() -> Iterator[None]:
    """Raises TimeoutError in a hang."""

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
    """The configuration of a captured run."""
    return from_dict(asdict(Bundle(DATA / run).read().configuration))


def exported(bundle: Bundle) -> str:
    """The timeline in both formats, and the tables."""
    evidence = Evidence(bundle.path)
    trace = assembled(evidence)
    frames = RunBundle(bundle.path)
    for table in (frames.spans, frames.steps, frames.epochs):
        table()
    return json.dumps([trace_events(trace, evidence.resources), otlp(trace, "run", evidence.anchors[0])])


COMMANDS: tuple[Callable[[Bundle, str], object], ...] = (
    lambda bundle, run: json.dumps(record.computed(bundle, experiment(run))),
    lambda bundle, run: exported(bundle),
    lambda bundle, run: render(document([source(bundle)])),
    lambda bundle, run: verify(bundle, ""),
    lambda bundle, run: bundle.read(),
)


def check(run: str, kind: str, name: str, directory: Path) -> None:
    """Damages one file and runs what `trace`, `export`, `report`, `verify` and `show` run."""
    bundle = Bundle(Path(shutil.copytree(DATA / run, directory / "20260102T030405Z-0a1b")))
    DAMAGE[kind](bundle.path / name, random.Random(f"{run} {kind} {name}"))
    with deadline():
        for command in COMMANDS:
            try:
                command(bundle, run)
            except DlobdError:
                continue  # one line of error


@pytest.mark.parametrize(("run", "kind", "name"), SAMPLED)
def test_a_damaged_file_ends_in_a_result_or_in_one_line(run: str, kind: str, name: str, tmp_path: Path) -> None:
    """A sample of all kinds of damage, files and runs."""
    check(run, kind, name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("run", "kind"), [(run, kind) for run in RUNS for kind in DAMAGE])
def test_each_file_damaged_in_each_way(run: str, kind: str, tmp_path: Path) -> None:
    """The whole matrix."""
    for number, name in enumerate(names(run, kind)):
        (directory := tmp_path / str(number)).mkdir()
        check(run, kind, name, directory)
        shutil.rmtree(directory)


DECIDING = (
    "spans/driver",
    "logs/driver.stderr",
    "logs/daemons/resourcemanager.log",
    files.MARKERS,
    files.DRIVER_JVM_LOG,
)
WARNED = (files.EVENT_LOG, files.BLOCKS, files.CHECKSUMS, files.RM_APPLICATION, files.COLLECTED)


@pytest.mark.parametrize("kind", ["directory", "fifo", "null"])
@pytest.mark.parametrize("name", DECIDING)
def test_damage_on_which_the_breakdown_depends_makes_a_run_invalid(name: str, kind: str, tmp_path: Path) -> None:
    """Damage is named, and is never a smaller number."""
    bundle = Bundle(Path(shutil.copytree(DATA / "quick-run", tmp_path / "20260102T030405Z-0a1b")))
    path = bundle.path / name
    path = next(path.iterdir()) if path.is_dir() else path
    DAMAGE[kind](path, random.Random(1))
    found = record.computed(bundle, experiment("quick-run"))
    assert found["status"] == "invalid"
    assert path.name in found["reason"] or "span file of the driver" in found["reason"]


@pytest.mark.parametrize("name", WARNED)
def test_other_damage_is_a_warning(name: str, tmp_path: Path) -> None:
    """The breakdown holds; the figures that need the file are unknown."""
    bundle = Bundle(Path(shutil.copytree(DATA / "quick-run", tmp_path / "20260102T030405Z-0a1b")))
    (bundle.path / name).write_text('[{"a": 1}]\n')
    found = record.computed(bundle, experiment("quick-run"))
    assert any(name in warning and "damaged" in warning for warning in found["warnings"])


def test_an_event_log_with_a_damaged_line_gives_no_sums(tmp_path: Path) -> None:
    """One task of it is unknown: the sum of the others would be too small."""
    bundle = Bundle(Path(shutil.copytree(DATA / "quick-run", tmp_path / "20260102T030405Z-0a1b")))
    path = bundle.path / files.EVENT_LOG
    assert record.computed(bundle, experiment("quick-run"))["spark_metrics"]["metrics"]["numTasks"] > 1
    lines = path.read_text().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if '"SparkListenerTaskEnd"' in line)
    lines[number] = lines[number][:200] + "\n"
    path.write_text("".join(lines))
    found = record.computed(bundle, experiment("quick-run"))
    assert found["spark_metrics"] is None
    assert any("has 1 damaged lines" in warning for warning in found["warnings"])


def test_a_file_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    """A sparse file of 2 GiB would need as much memory."""
    path = tmp_path / "log"
    path.touch()
    os.truncate(path, 2 << 30)
    assert reading.read_bytes(path) == reading.Damaged("is larger than 512 MiB")


def test_a_link_to_another_directory_is_not_followed(tmp_path: Path) -> None:
    """The bundle itself may be reached by a link; a directory inside of it may not be one."""
    (tmp_path / "bundle" / "evidence").mkdir(parents=True)
    (tmp_path / "bundle" / "evidence" / "a").write_text("a")
    (tmp_path / "link").symlink_to(tmp_path / "bundle")
    assert reading.read_text(tmp_path / "link" / "evidence" / "a") == "a"
    (tmp_path / "bundle" / "logs").symlink_to(tmp_path / "bundle" / "evidence")
    assert reading.read_text(tmp_path / "bundle" / "logs" / "a") == reading.Damaged("lies below logs, which is a link")
    assert dict(reading.damage(tmp_path / "bundle")) == {"logs": "is not a directory"}


def test_a_value_of_another_shape_is_described() -> None:
    """The first member that differs, with its path."""
    assert reading.mismatch({"a": [1, 2]}, dict[str, list[int]]) is None
    assert reading.mismatch({"a": [1, "2"]}, dict[str, list[int]]) == 'a[1] is "2", not a 64-bit integer'
    assert reading.mismatch(True, int) == "the whole is true, not a 64-bit integer"
    assert reading.mismatch(10**40, int | None) is not None
    assert reading.mismatch([], dict[str, int]) == "the whole is an array, not an object"
    assert isinstance(reading.parse_json("[" * NESTED, list[int]), reading.Damaged)
