"""A damaged bundle gives a result or one line of error, within seconds: never another exception, never a hang."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dlobd.bundle import files, reading
from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.recompute import computed as record
from dlobd.report.page.data import document, source
from dlobd.report.page.render import render
from dlobd.schema import Clip
from dlobd.timeline.assemble import assemble
from tests.captured import DATA, NAMES, copy_of
from tests.damage import DAMAGE, NESTED, check, deadline, experiment, names

SAMPLE = 15
"""Of about 2,000 cases. tests/full/damage has all of them."""

CASES = [(run, kind, name) for run in NAMES for kind in DAMAGE for name in names(run, kind)]
SAMPLED = random.Random(30).sample(CASES, SAMPLE)


@pytest.mark.parametrize(("run", "kind", "name"), SAMPLED)
def test_a_damaged_file_ends_in_a_result_or_in_one_line(run: str, kind: str, name: str, tmp_path: Path) -> None:
    check(run, kind, name, tmp_path)


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
    bundle = Bundle(copy_of("quick-run", tmp_path))
    path = bundle.path / name
    path = next(path.iterdir()) if path.is_dir() else path
    DAMAGE[kind](path, random.Random(1))
    found = record.computed(bundle, experiment("quick-run")).to_json()
    assert found["status"] == "invalid"
    assert path.name in found["reason"] or "span file of the driver" in found["reason"]


@pytest.mark.parametrize("name", WARNED)
def test_other_damage_is_a_warning(name: str, tmp_path: Path) -> None:
    bundle = Bundle(copy_of("quick-run", tmp_path))
    (bundle.path / name).write_text('[{"a": 1}]\n')
    found = record.computed(bundle, experiment("quick-run")).to_json()
    assert any(name in warning and "damaged" in warning for warning in found["warnings"])


TRAINER = "spans/container_1795717270784_0021_01_000002/spans-23529-31079147597149.jsonl"
BEGIN_NS, COUNT = 31_084_000_000_000, 3_000
"""Time of the training of the quick run, and number of added spans."""


def _span(number: int, at_ns: int, ns: int, kind: str = "s", **more: object) -> dict[str, object]:
    begin = {"k": kind, "i": 10_000 + number, "p": 14, "l": "tensorflow", "n": "decode", "t": BEGIN_NS + at_ns}
    return begin | ({"d": ns} if kind == "s" else {}) | more


BAD_SPANS: dict[str, Callable[[int], dict[str, object]]] = {
    "open": lambda n: _span(n, 1_000 * n, 0, "b"),
    "open in each other": lambda n: _span(n, 1_000 * n, 0, "b", p=9_999 + n if n else 14),
    "ended in each other": lambda n: _span(n, 100 * n, 10**9 - 200 * n, p=9_999 + n if n else 14),
    "crossing": lambda n: _span(n, 1_000 * n, 1_500),
    "many names": lambda n: _span(n, 1_000 * n, 900, l="hdfs", n=f"write file-{n}"),
    "many threads": lambda n: _span(n, 1_000 * n, 900, th=f"thread-{n}"),
    "many attributes": lambda n: _span(n, 1_000 * n, 900, a={"bytes": n}),
    "many waits": lambda n: _span(
        n, 1_000 * n, 900, w={"waits_for": [f"rank-{n}"], "cause": f"c{n}", "cause_period_ns": 9}
    ),
    "out of order": lambda n: _span(n, 1_000 * (7 * n % COUNT), 900),
    "from a clock that was stepped": lambda n: _span(n, 1_000 * n + 10**11 * (-1 if n < COUNT / 2 else 36), 900),
    "equal IDs": lambda n: _span(0, 1_000 * n, 900),
}


@pytest.mark.parametrize("kind", BAD_SPANS)
def test_bad_spans_give_a_result_of_bounded_size(kind: str, tmp_path: Path) -> None:
    """Record and page do not grow with the number of bad spans, and the parts still sum to the wall time."""
    bundle = Bundle(copy_of("quick-run", tmp_path))
    with (bundle.path / TRAINER).open("a") as file:
        file.writelines(json.dumps(BAD_SPANS[kind](number)) + "\n" for number in range(COUNT))
        file.write('{"k":"s","i":1,"p":14,"l":"tenso')  # and cut inside a line
    with deadline():
        found = record.computed(bundle, experiment("quick-run")).to_json()
        page = render(document([source(bundle)])) if kind in ("open", "many names") else ""
    stored = bundle.read_json()
    assert found["status"] == "invalid"
    assert found["wall_ns"] == stored["wall_ns"]
    assert sum(layer["ns"] for layer in found["layers"]) + found["unattributed_ns"] == found["wall_ns"]
    listed = Counter(clip["kind"] for clip in found["clips"])
    assert max(listed.values(), default=0) <= record.MOST_CLIPS + 1
    assert len(json.dumps(found)) < 500_000
    assert len(page.encode()) < 2_000_000
    bundle.write(stored | found)  # a valid record


def test_spans_out_of_order_are_the_same_spans(tmp_path: Path) -> None:
    bundle = Bundle(copy_of("quick-run", tmp_path))
    path = bundle.path / TRAINER
    lines = path.read_text().splitlines(keepends=True)
    places = [place for place, line in enumerate(lines) if line.startswith('{"k":"s"')]
    for place, other in zip(places, random.Random(1).sample(places, len(places)), strict=True):
        lines[place] = path.read_text().splitlines(keepends=True)[other]
    path.write_text("".join(lines))
    found = record.computed(bundle, experiment("quick-run")).to_json()
    stored = Bundle(DATA / "quick-run").read_json()
    assert {name for name in found if found[name] != stored[name]} <= {"versions"}


def test_the_sum_of_small_corrections_is_exact() -> None:
    clips = [Clip("crossing", f"span-{n}", n) for n in range(3 * record.MOST_CLIPS)] + [Clip("cycle", "one", 5)]
    found = record._summed(clips)
    assert sum(clip.ns for clip in found) == sum(clip.ns for clip in clips)
    assert sum(clip.count for clip in found) == len(clips)
    assert len(found) == record.MOST_CLIPS + 2
    assert found[0] == clips[2 * record.MOST_CLIPS]
    assert record._summed(clips[:10]) == tuple(clips[:10])


def test_an_event_log_with_a_damaged_line_gives_no_sums(tmp_path: Path) -> None:
    bundle = Bundle(copy_of("quick-run", tmp_path))
    path = bundle.path / files.EVENT_LOG
    assert record.computed(bundle, experiment("quick-run")).to_json()["spark_metrics"]["metrics"]["numTasks"] > 1
    lines = path.read_text().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if '"SparkListenerTaskEnd"' in line)
    lines[number] = lines[number][:200] + "\n"
    path.write_text("".join(lines))
    found = record.computed(bundle, experiment("quick-run")).to_json()
    assert found["spark_metrics"] is None
    assert any("has 1 damaged lines" in warning for warning in found["warnings"])


def test_large_files_and_links_are_not_read_and_other_shapes_are_described(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    os.truncate(path, 2 << 30)
    assert reading.read_bytes(path) == reading.Damaged("is larger than 512 MiB")
    (tmp_path / "bundle" / "evidence").mkdir(parents=True)
    (tmp_path / "bundle" / "evidence" / "a").write_text("a")
    (tmp_path / "link").symlink_to(tmp_path / "bundle")
    assert reading.read_text(tmp_path / "link" / "evidence" / "a") == "a"
    (tmp_path / "bundle" / "logs").symlink_to(tmp_path / "bundle" / "evidence")
    assert reading.read_text(tmp_path / "bundle" / "logs" / "a") == reading.Damaged("lies below logs, which is a link")
    assert dict(reading.damage(tmp_path / "bundle")) == {"logs": "is not a directory"}
    assert reading.mismatch({"a": [1, 2]}, dict[str, list[int]]) is None
    assert reading.mismatch({"a": [1, "2"]}, dict[str, list[int]]) == "[...][1]: expected `int`, got `str`"
    assert reading.mismatch(True, int) == "the value: expected `int`, got `bool`"
    assert reading.mismatch([], dict[str, int]) == "the value: expected `object`, got `array`"
    assert reading.parse_json(f"{10**40}", int) == reading.Damaged(
        "not JSON (10000000000000000000... has more than 64 bits)"
    )
    assert reading.parse_json("1e400", float) == reading.Damaged("not JSON (1e400 is infinite)")
    assert reading.parse_json("-Infinity", float, infinite=True) == float("-inf")
    assert isinstance(reading.parse_json("[" * NESTED, list[int]), reading.Damaged)


@pytest.mark.parametrize("run", ["killed-trainer", "own-run", "quick-run"])
def test_a_driver_log_with_all_lines_twice_has_no_second_application(run: str, tmp_path: Path) -> None:
    path = copy_of(run, tmp_path)
    DAMAGE["twice"](path / files.DRIVER_STDERR, random.Random(0))
    evidence = Evidence(path)
    spans = [span.id for span in assemble(evidence).spans]
    assert len(evidence.applications) == 1
    assert len(spans) == len({*spans})
