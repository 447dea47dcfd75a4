"""Missing evidence: each file of each captured bundle is deleted, and cut, in turn."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from dlobd import spans as kinds
from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected import kinds as source_kinds
from dlobd.evidence.expected.search import missing
from dlobd.experiment.own_job import from_dict
from dlobd.layers import UNATTRIBUTED
from dlobd.recompute import computed as record
from tests.captured import DATA, Captured, copy_of, note_sizes

RUNS = ("quick-run", "own-run", "native-run", "killed-trainer")
SMALL = 0.01
"""Of the wall: what a boundary may move."""

UNREADABLE = (files.WINDOW, files.JOB)
"""Without these nothing is computed, and one line says so."""

EXTRA = """
evidence/hosts.json evidence/rm-attempts.json evidence/model.py evidence/client-interfaces.json
logs/generation/logs/driver.stderr logs/containers/container_1_0001_01_000001/stdout
logs/containers/executor_0/stderr logs/containers/container_1_0001_01_000001/launch_container.sh
logs/daemons/resourcemanager-audit.log logs/daemons/spark-master.log
logs/driver.log logs/log4j2-driver.properties logs/containers/container_1_0001_01_000001/spark.log
"""
"""What bundles have besides what was captured."""


def sources(run: str) -> list[str]:
    """Return every file of a captured bundle except its record and its hashes."""
    found = Bundle(DATA / run).files()
    return [name for name in found if name != files.RUN]


EACH = [pytest.param(run, name, id=f"{run}:{name}") for run in RUNS for name in sources(run)]


def computed(path: Path, run: str) -> dict[str, Any]:
    configuration = dataclasses.asdict(Bundle(DATA / run).read().configuration)
    return record.computed(Bundle(path), from_dict(configuration, "test")).to_json()


def missing_lines(found: dict[str, Any]) -> list[str]:
    return [line for line in found["warnings"] if line.startswith("missing: ")]


def claims_nothing(found: dict[str, Any], before: dict[str, Any]) -> None:
    """Fail if a layer gained time, or lost time without being listed as unknown."""
    limit_ns = SMALL * before["wall_ns"]
    then = {row["layer"]: row["ns"] for row in before["layers"]}
    now = {row["layer"]: row["ns"] for row in found["layers"]}
    assert sum(now.values()) + found["unattributed_ns"] == found["wall_ns"]
    unknown = {row["layer"] for row in found["not_measured"] if row["inside"] == UNATTRIBUTED}
    highest = {row["layer"]: row["hi_ns"] for row in found["layers"]}
    for layer in then.keys() | now.keys():
        change_ns = now.get(layer, 0) - then.get(layer, 0)
        assert change_ns <= limit_ns, (layer, change_ns, missing_lines(found))
        if change_ns < -limit_ns:
            assert layer in unknown, (layer, change_ns, missing_lines(found))
            if layer in highest:
                assert highest[layer] >= then[layer] - limit_ns, layer


@pytest.mark.parametrize("run", RUNS)
def test_a_whole_bundle_lacks_nothing(run: str, tmp_path: Path) -> None:
    assert missing_lines(Captured.computed(run)) == []
    found = computed(copy_of(run, tmp_path), run)
    assert missing_lines(found) == []
    assert (found["status"], found["reason"]) == (Captured.computed(run)["status"], Captured.computed(run)["reason"])
    assert not any(row["inside"] == UNATTRIBUTED for row in found["not_measured"])


@pytest.mark.parametrize(("run", "name"), EACH)
def test_each_file_that_is_deleted_is_missed(run: str, name: str, tmp_path: Path) -> None:
    path = copy_of(run, tmp_path)
    (path / name).unlink()
    if name in UNREADABLE:
        with pytest.raises(BundleError, match=r"has no (window|evidence/job\.json)"):
            computed(path, run)
        return
    found = computed(path, run)
    assert missing_lines(found), found["warnings"]
    kind = source_kinds.kind_of(name)
    assert kind
    before = Captured.computed(run)
    if before["status"] != "ok":
        assert found["status"] == before["status"]  # what a job failed of stays the reason
        return
    claims_nothing(found, before)
    decides = kind.decides and not (run == "native-run" and kind is source_kinds.DRIVER_LOG)
    if decides:
        assert found["status"] == "invalid"
        assert next(check for check in found["checks"] if check["verdict"] == "fail")["code"] == "evidence-complete"
    else:
        assert (found["status"], found["reason"]) == ("ok", None)


BY_INVENTORY_ALONE = (
    files.DAEMONS,
    files.ENVIRONMENT_CACHE,
    files.NM_CONTAINERS,
    files.NOISE,
    files.PAGE_CACHE,
    files.RESOURCES,
    files.SPAN_COST,
)
"""Files that only the inventory names."""


@pytest.mark.slow
@pytest.mark.parametrize(("run", "name"), [each for each in EACH if each.values[0] != "killed-trainer"])
def test_each_source_is_missed_without_an_inventory(run: str, name: str, tmp_path: Path) -> None:
    if name in UNREADABLE:
        return
    path = copy_of(run, tmp_path)
    collected = json.loads((path / files.COLLECTED).read_text())
    (path / files.COLLECTED).write_text(json.dumps({**collected, "files": {"evidence/job.json": _size(path)}}))
    before = missing_lines(computed(path, run))
    (path / name).unlink()
    after = missing_lines(computed(path, run))
    assert bool(set(after) - set(before)) == (name not in BY_INVENTORY_ALONE), after


def _size(path: Path) -> int:
    return (path / files.JOB).stat().st_size


@pytest.mark.parametrize("run", ["quick-run", "own-run", "native-run"])
def test_without_any_spans_nothing_is_claimed(run: str, tmp_path: Path) -> None:
    path = copy_of(run, tmp_path)
    shutil.rmtree(path / "spans")
    found = computed(path, run)
    assert found["status"] == "invalid"
    assert found["reason"].startswith("the span file of the driver is absent")
    claims_nothing(found, Captured.computed(run))
    assert found["unattributed_ns"] > 0.9 * found["wall_ns"]


def test_a_recorder_that_was_off_misses_nothing(tmp_path: Path) -> None:
    path = copy_of("quick-run", tmp_path)
    shutil.rmtree(path / "spans")
    (path / files.SPAN_COST).write_text(json.dumps({"recording": "off", "span_ns": None}))
    assert not any("span file" in line for line in missing_lines(computed(path, "quick-run")))


CUT = [
    each
    for each in EACH
    if each.values[0] in ("quick-run", "own-run", "native-run")
    and (str(each.values[1]).startswith("spans/") or str(each.values[1]).endswith(("/stderr", "driver.stderr")))
    and (DATA / str(each.values[0]) / str(each.values[1])).stat().st_size
]


@pytest.mark.slow
@pytest.mark.parametrize("half", ["first", "last"])
@pytest.mark.parametrize(("run", "name"), CUT)
def test_a_file_of_which_half_is_left_is_noticed(run: str, name: str, half: str, tmp_path: Path) -> None:
    path = copy_of(run, tmp_path)
    file = path / name
    data = file.read_bytes()
    middle = len(data) // 2 + 1
    file.write_bytes(data[:middle] if half == "first" else data[middle:])
    found = computed(path, run)
    assert missing_lines(found)
    assert found["status"] == "invalid"
    claims_nothing(found, Captured.computed(run))


def test_a_line_that_is_taken_out_of_a_span_file_is_noticed(tmp_path: Path) -> None:
    path = copy_of("quick-run", tmp_path)
    (rank,) = [file for file in (path / "spans").rglob("*.jsonl") if '"role":"chief"' in file.read_text()]
    lines = rank.read_text().splitlines(keepends=True)
    cost = {"spans": 9, "lines": len(lines), "bytes": 9, "flushes": 9, "wall_ns": 9, "cpu_ns": 9, "lost_lines": 0}
    end = json.dumps({"k": "cost", **cost, "left_out": 0}) + "\n"
    rank.write_text("".join([*lines, end]))
    note_sizes(path)
    assert missing_lines(computed(path, "quick-run")) == []
    rank.write_text("".join([*lines[:20], *lines[21:], end]))
    note_sizes(path)
    (line,) = missing_lines(computed(path, "quick-run"))
    assert f"has {len(lines) - 1} lines, but its recorder wrote {len(lines)}" in line


def test_a_disk_that_refused_spans_is_named_with_the_process(tmp_path: Path) -> None:
    path = copy_of("quick-run", tmp_path)
    log = sorted((path / files.CONTAINER_LOGS).glob("*/stderr"))[1]
    log.write_text(log.read_text() + "dlobd: 7 lines of spans of process 22969 are lost in all\n")
    note_sizes(path)
    found = computed(path, "quick-run")
    assert any(f"7 lines of the spans of process 22969 in {log.parent.name}" in line for line in missing_lines(found))
    assert found["status"] == "invalid"


def with_own_logs(path: Path) -> list[Path]:
    """Change a captured bundle to one whose JVMs have logs of their own, with stderr in another style."""
    status = re.compile(r"\S+Z \S+ INFO ")  # log4j's own lines
    logs = [(path / files.DRIVER_STDERR, path / files.DRIVER_LOG)]
    logs += [(log, log.with_name(files.SPARK_LOG)) for log in (path / files.CONTAINER_LOGS).glob("*/stderr")]
    for stderr, own in logs:
        lines = stderr.read_text().splitlines(keepends=True)
        own.write_text("".join(line for line in lines if not status.match(line)))
        stderr.write_text("".join(filter(status.match, lines)) + "[WARN ] 26 Nov 2026 (main) Utils - a house style\n")
    note_sizes(path)
    return [file for pair in logs for file in pair]


def test_the_evidence_does_not_depend_on_what_the_user_logs(tmp_path: Path) -> None:
    path = copy_of("own-run", tmp_path)
    with_own_logs(path)
    found, before = computed(path, "own-run"), Captured.computed("own-run")
    assert (found["status"], missing_lines(found)) == ("ok", [])
    assert found["layers"] == before["layers"]
    assert found["unattributed_ns"] == before["unattributed_ns"]


def test_each_log_of_a_jvm_is_missed_by_itself(tmp_path: Path) -> None:
    path = copy_of("own-run", tmp_path)
    for log in with_own_logs(path):
        text = log.read_bytes()
        log.unlink()
        name = str(log.relative_to(path))
        assert name in {one.what for one in missing(Evidence(path)) if one.how.startswith("is absent")}
        log.write_bytes(text)


def test_nodes_of_a_cluster_of_the_script_are_counted(tmp_path: Path) -> None:
    path = copy_of("own-run", tmp_path)
    spans = next((path / "spans" / "driver").iterdir())
    begin = {"k": "s", "l": "launcher", "n": kinds.TFCLUSTER_RUN, "i": 9999, "p": 1, "t": 3590000000000, "d": 10}
    spans.write_text(spans.read_text() + json.dumps({**begin, "a": {"nodes": 2}}) + "\n")
    absent = [one for one in missing(Evidence(path)) if one.kind is source_kinds.RANK_SPANS]
    assert [one.what for one in absent] == ["spans of 2 of 2 nodes of TFCluster.run"]


@pytest.mark.parametrize("name", [*EXTRA.split(), *sorted({name for run in RUNS for name in sources(run)})])
def test_every_file_of_a_bundle_has_a_rule(name: str) -> None:
    kind = source_kinds.kind_of(name)
    assert kind.unknown
