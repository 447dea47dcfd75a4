"""A series: its order, its finished runs, and its state after a kill."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlobd.bundle import store
from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError, ClusterError, SetupError, UsageError
from dlobd.experiment import files
from dlobd.experiment import series as series_file
from dlobd.hadoop.web import NodeResources
from dlobd.run import runner, series_runner
from dlobd.run.place import embedded
from dlobd.schema import Experiment
from tests.records import run_record

NATIVE = ["launcher=native", "scheduler=none", "input=read"]


def points(*labels: str) -> dict[str, Experiment]:
    """Return experiments without a cluster, named by their labels."""
    base = files.load("softmax-mnist-quick", NATIVE)
    return {label: dataclasses.replace(base, name=label) for label in labels}


class Runs:
    """Stands in for `runner.run`: leaves a bundle with the status that is next, or raises what is next."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.next: list[Any] = []

    def __call__(self, point: Experiment, out: Path, progress: Any, running: Any, observer: Any) -> Path:
        bundle = store.create(out, point.name)
        observer.created(bundle)
        self.made.append(point.name)
        ending = self.next.pop(0) if self.next else "ok"
        if isinstance(ending, BaseException):
            raise ending
        cause = None if ending == "ok" else "because"
        bundle.write(run_record(bundle.run_id, status=ending, reason=cause, experiment=point.name))
        bundle.seal()
        return bundle.path


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    stand_in = Runs()
    monkeypatch.setattr(runner, "run", stand_in)
    monkeypatch.setattr(series_runner, "LOOK_S", 0.01)
    return stand_in


def go(found: series_file.Series, repeats: int) -> tuple[series_file.Series, list[str]]:
    lines: list[str] = []
    return series_runner.run(found, repeats, lambda message: None, lines.append), lines


def test_each_repeat_takes_every_point_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    """A randomised block design; the seed decides, and the number of repeats changes nothing before its end."""
    found = series_runner.opened(points("a", "b", "c", "d"), 1, tmp_path)
    order = found.order(30)
    blocks = [[cell.point for cell in order[i : i + 4]] for i in range(0, 120, 4)]
    assert all(sorted(block) == ["a", "b", "c", "d"] for block in blocks)
    assert [cell.repeat for cell in order[:9]] == [1, 1, 1, 1, 2, 2, 2, 2, 3]
    assert len({tuple(block) for block in blocks}) > 10
    assert Counter(block[0] for block in blocks).keys() == {"a", "b", "c", "d"}
    assert found.order(3) == order[:12]
    assert series_runner.opened(points("d", "c", "b", "a"), 1, tmp_path).order(30) == order
    assert series_runner.opened(points("a", "b", "c", "d"), 2, tmp_path).order(30) != order


def test_every_run_is_made_once_and_reported_in_a_line(tmp_path: Path, runs: Runs) -> None:
    runs.next = ["ok", "failed", "invalid"]
    found, lines = go(series_runner.opened(points("a", "b"), 7, tmp_path), 2)
    assert runs.made == [cell.point for cell in found.order(2)]
    assert len(lines) == 4
    assert lines[1].startswith("run 2 of 4: ")
    assert "failed (because), 1.0 s" in lines[1]
    assert lines[3].endswith("last run")
    assert set(found.ended()) == set(found.order(2))
    again, lines = go(series_runner.opened(points("a", "b"), 7, tmp_path), 2)
    assert (len(runs.made), lines) == (4, [])
    assert again.ended() == found.ended()


def test_more_repeats_go_on_where_fewer_have_ended(tmp_path: Path, runs: Runs) -> None:
    first, _ = go(series_runner.opened(points("a", "b"), 0, tmp_path), 1)
    second, _ = go(series_runner.opened(points("a", "b"), 0, tmp_path), 3)
    assert len(runs.made) == 6
    assert first.ended().items() <= second.ended().items()


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), ClusterError("gone"), "interrupted"])
def test_a_run_that_was_broken_off_is_repeated(tmp_path: Path, runs: Runs, ending: Any) -> None:
    runs.next = ["ok", ending]
    try:
        go(series_runner.opened(points("a"), 0, tmp_path), 3)
    except (KeyboardInterrupt, ClusterError):
        assert len(runs.made) == 2
        assert len(series_runner.opened(points("a"), 0, tmp_path).ended()) == 1
    found, _ = go(series_runner.opened(points("a"), 0, tmp_path), 3)
    assert len(found.ended()) == 3
    assert len(runs.made) == 4


def test_a_run_killed_before_its_bundle_was_sealed_is_repeated(tmp_path: Path, runs: Runs) -> None:
    """kill -9 leaves a bundle without hashes, or without a record."""
    found, _ = go(series_runner.opened(points("a"), 0, tmp_path), 2)
    one, two = found.ended().values()
    (one.path / "hashes").unlink()
    (two.path / "run.json").unlink()
    assert series_runner.opened(points("a"), 0, tmp_path).ended() == {}


def test_the_file_is_there_before_the_first_run_and_names_each(tmp_path: Path, runs: Runs) -> None:
    found = series_runner.opened(points("a"), 5, tmp_path)
    assert not found.path.exists()
    runs.next = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        go(found, 1)
    kept = json.loads(found.path.read_text())
    assert (kept["seed"], list(kept["points"])) == (5, ["a"])
    (begun,) = kept["begun"]
    assert (begun["repeat"], begun["point"]) == (1, "a")
    assert Bundle(tmp_path / "a" / begun["run_id"]).path.is_dir()
    assert [one.run_id for one in series_file.load(found.path).begun] == [begun["run_id"]]


def test_other_points_or_another_seed_are_another_series(tmp_path: Path) -> None:
    paths = {series_runner.opened(points(*labels), seed, tmp_path).path for labels in ("a", "ab") for seed in (0, 1)}
    assert len(paths) == 4


def test_one_cluster_serves_all_runs(tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    class Cluster:
        def __enter__(self) -> Any:
            opened.append("up")

        def __exit__(self, *_: object) -> None:
            opened.append("down")

    monkeypatch.setattr(embedded, "cluster", lambda *_: Cluster())
    go(series_runner.opened(points("a"), 0, tmp_path), 2)
    assert opened == []
    yarn = {"a": files.load("softmax-mnist-quick", ["name=a"])}
    go(series_runner.opened(yarn, 0, tmp_path), 3)
    assert opened == ["up", "down"]


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    path = series_runner.opened(points("a"), 0, tmp_path).path
    for text in ("{", "[]", '{"series_version": 1}', '{"series_version": 99}'):
        path.write_text(text)
        with pytest.raises(BundleError, match=path.name):
            series_runner.opened(points("a"), 0, tmp_path)
    with pytest.raises(UsageError):
        series_runner.opened({}, 0, tmp_path)


def test_an_external_cluster_serves_all_runs(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    there = SimpleNamespace(web=SimpleNamespace(node_resources=list), supply=lambda times: opened.append("supplied"))
    monkeypatch.setattr(
        series_runner.ExternalHadoop, "open", lambda elsewhere, report: opened.append(elsewhere) or there
    )
    monkeypatch.setattr(Runs, "__call__", lambda self, point, out, progress, running, hooks: lent(point, out, running))
    elsewhere = SimpleNamespace(read=lambda: SimpleNamespace(fs_uri="hdfs://nn:8020"))
    used: list[Any] = []

    def lent(point: Experiment, out: Path, running: Any) -> Path:
        used.append(running)
        bundle = store.create(out, point.name)
        bundle.write(run_record(bundle.run_id, experiment=point.name))
        return bundle.path

    yarn = {"a": dataclasses.replace(files.load("softmax-mnist-quick"), name="a")}
    found = series_runner.opened(yarn, 0, tmp_path, elsewhere)  # type: ignore[arg-type]
    assert found.path != series_runner.opened(yarn, 0, tmp_path).path
    series_runner.run(found, 2, lambda message: None, lambda line: None, elsewhere)  # type: ignore[arg-type]
    assert (opened, used) == ([elsewhere, "supplied"], [there, there])
    assert series_file.load(found.path).cluster == "hdfs://nn:8020"
    with pytest.raises(UsageError, match="--hadoop-conf needs scheduler = yarn"):
        series_runner.opened(points("a"), 0, tmp_path, elsewhere)  # type: ignore[arg-type]


def test_points_too_large_for_an_external_cluster_are_refused_before_uploads(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = SimpleNamespace(node_resources=lambda: [NodeResources(4096, 4096, {})], setting=lambda name: None)
    uploaded: list[str] = []

    there = SimpleNamespace(web=nodes, supply=lambda times: uploaded.append("all"))
    monkeypatch.setattr(series_runner.ExternalHadoop, "open", lambda elsewhere, report: there)
    elsewhere: Any = SimpleNamespace(read=lambda: SimpleNamespace(fs_uri="hdfs://nn:8020"))
    base = files.load("softmax-mnist-quick")
    yarn = {str(n): dataclasses.replace(base, name=f"w{n}", workers=n) for n in (1, 10, 20)}
    told: list[str] = []
    with pytest.raises(SetupError, match=r"2 of 3 points cannot be run here"):
        series_runner.run(
            series_runner.opened(yarn, 0, tmp_path, elsewhere), 1, lambda message: None, told.append, elsewhere
        )
    assert [line.partition(" executors")[0] for line in told] == ["10: 10", "20: 20"]
    assert (uploaded, runs.made) == ([], [])


def test_a_sweep_stores_its_axes_and_scaling(tmp_path: Path, runs: Runs) -> None:
    swept = series_runner.opened(points("a", "b"), 0, tmp_path, None, ("workers",), "strong")
    assert swept.path == series_runner.opened(points("a", "b"), 0, tmp_path).path
    go(swept, 1)
    found = series_file.load(swept.path)
    assert (found.axes, found.scaling, len(found.ended())) == (("workers",), "strong", 2)
    plain, _ = go(series_runner.opened(points("c"), 0, tmp_path), 1)
    assert "sweep" not in json.loads(plain.path.read_text())
    assert (series_file.load(plain.path).axes, series_file.load(plain.path).scaling) == ((), "")


def test_impossible_points_are_refused_before_the_first_run(tmp_path: Path, runs: Runs) -> None:
    large = {name: dataclasses.replace(files.load("softmax-mnist-quick"), workers=1000, name=name) for name in "ab"}
    lines: list[str] = []
    found = series_runner.opened({**points("c"), **large}, 0, tmp_path)
    with pytest.raises(SetupError, match="2 of 3 points cannot be run here"):
        series_runner.run(found, 1, lambda message: None, lines.append)
    assert [line.partition(": ")[0] for line in lines] == ["a", "b"]
    assert all("1000 executors of 512 + 1280 MB and 1 vcore do not fit" in line for line in lines)
    with pytest.raises(SetupError, match="1000 executors"):
        go(series_runner.opened({"a": large["a"]}, 0, tmp_path), 1)
    assert (runs.made, list(tmp_path.iterdir())) == ([], [])
