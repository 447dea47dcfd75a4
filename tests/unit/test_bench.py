"""The bench's tables: made from records, written between the markers, loud where they cannot be trusted."""

from __future__ import annotations

import dataclasses
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from analysis.studies import runs as studied
from analysis.studies.amortisation import amortisation as amortised
from analysis.studies.stack_overhead import stack_overhead as overhead_of
from bench import __main__ as main
from bench import amortisation, cluster, command, jobs, models, publish, remedies, stack_overhead
from bench.jobs import points
from bench.tables import Table
from dlobd.axes import LAUNCHERS
from dlobd.compare.runset import RunSet, without_series
from dlobd.errors import UsageError
from dlobd.record.run import Finding, Run
from dlobd.run import series_runner
from tests.records import run as run_of
from tests.repeats import experiment, member, runset

DOCS = Path(__file__).parents[2] / "docs"


def record(number: int, first_s: float, loop_s: float, **changes: Any) -> Run:
    """Return a run with executors after 8 s, a first step after `first_s`, a loop of `loop_s`, an exit 2 s later."""
    start_ns = 5_000
    first_ns = start_ns + int(first_s * 1e9)
    last_ns = first_ns + int(loop_s * 1e9)
    known = {"source": "own mark", "resolution_ns": 1}
    return run_of(
        f"20260102T0304{number:02}Z-0a1b",
        window={"name": "w", "start_ns": start_ns, "end_ns": last_ns + 2 * 10**9, "clock": "c"},
        startup=[
            {"event": "executor registered", "at_ns": start_ns + 8 * 10**9, **known},
            {"event": "first step done", "at_ns": first_ns, **known},
        ],
        teardown=[{"event": "last step done", "at_ns": last_ns, **known}],
        metrics={"steps": 601, "train_samples": 601 * 200, "executor_peak_bytes": 2**30, "daemons_bytes": 2**29},
        **changes,
    )


def runs() -> dict[str, list[Run]]:
    """Return runs: 30 s to the first step for stock, else 18 s; loops of 3 s if ranks read, of 4 s if Spark feeds."""
    made = {}
    for place, label in enumerate(points()):
        launcher, source = label.split()
        first_s = 30.0 if launcher == "tfos-stock" else 18.0
        made[label] = [record(10 * place + i, first_s, 3.0 if source == "read" else 4.0) for i in range(6)]
    return made


def rows(table: Table) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in table.rows}


def test_tables_have_seconds_saved_first_and_the_ratio_last() -> None:
    """18 s against 30: 12 saved, 0.6; a loop of 4 s against one of 3: three quarters of the rate."""
    first, own, teardown, tfos, _, memory, daemons = jobs.tables(jobs.values(runs()))
    assert first.columns[-2:] == ["saved, s", "ratio to tfos-stock"]
    assert rows(first)["barrier"] == ["6", "18", "18-18", "18-18", "12", "0.6 (0.6 to 0.6; 96.9 %)"]
    assert rows(first)["tfos-stock"][-1] == "1"
    assert [rows(own)[name][1] for name in ("tfos-stock", "tfos")] == ["22", "10"]
    assert rows(own)["tfos"][-1] == "0.455 (0.455 to 0.455; 96.9 %)"
    assert rows(teardown)["tfos"][1] == "2"
    assert rows(tfos)["read"][1] == "40,000"
    assert rows(tfos)["feed"][-1] == "0.75 (0.75 to 0.75; 96.9 %)"
    assert rows(memory)["tfos"][1] == "1,024"
    assert rows(daemons)["all six"][:2] == ["30", "512"]


def test_a_run_that_is_not_ok_counts_nowhere_and_is_named() -> None:
    every = runs()
    every["tfos feed"][0] = dataclasses.replace(every["tfos feed"][0], status="failed", reason="died")
    first, *_ = jobs.tables(jobs.values(every))
    assert rows(first)["tfos"][0] == "5"
    assert rows(first)["tfos"][-1] == "0.6 [0.6 to 0.6]"
    facts = publish.machine([run for each in every.values() for run in each])
    assert f"{every['tfos feed'][0].run_id} failed" in facts[-1]
    assert "1 of 30 runs are not ok: 1 failed" in facts[-1]


@pytest.mark.parametrize(("busy", "warns"), [([3.0, 4.0], False), ([3.0, 60.0], True)])
def test_the_page_keeps_its_words_and_warns_of_a_busy_machine(tmp_path: Path, busy: list[float], warns: bool) -> None:
    page = tmp_path / publish.PAGE
    page.write_text((DOCS / publish.PAGE).read_text())
    before = page.read_text()
    records = [run for each in runs().values() for run in each]
    facts = [*publish.machine(records), *publish.loaded(busy)]
    for _ in range(2):
        publish.publish(tmp_path, "bench", facts, jobs.tables(jobs.values(runs())))
    text = page.read_text()
    begin, end = publish.markers("bench")
    for part in (0, 2):
        cut = [t.partition(begin)[0] if part == 0 else t.partition(end)[2] for t in (before, text)]
        assert cut[0] == cut[1]
    assert text.count("### Submit to first step") == 1
    assert ("do not quote" in text) == warns


def test_the_clusters_and_the_recorders_tables() -> None:
    starts = [{cluster.SECONDS: 9.0, "namenode, CPU s": 3.0}, {cluster.SECONDS: 11.0, "namenode, CPU s": 4.0}]
    assert rows(cluster.table(cluster.values(starts)))[cluster.SECONDS] == ["2", "10", "9.5-10.5", "9-11"]
    loops = [{"off_ns": [2000.0, 2100.0], "on_ns": [2200.0, 2310.0 + k]} for k in range(6)]
    loop = main.recorder_table([*loops, None])
    assert rows(loop)["off"][:3] == ["6", "2.05", "2.05-2.05"]
    assert rows(loop)["added"][0] == "6"
    assert "Added: 0.206 (0.205 to 0.208; 96.9 %) us." in loop.says


def test_pages_are_those_of_the_stored_figures(tmp_path: Path) -> None:
    for name in (publish.PAGE, "bench.json"):
        shutil.copy(DOCS / name, tmp_path)
    main.republish(tmp_path)
    assert (tmp_path / publish.PAGE).read_text() == (DOCS / publish.PAGE).read_text()


def test_the_table_of_models_has_size_steps_and_layers() -> None:
    shown = record(1, 18.0, 3.0, ranks=[STEPS, {**STEPS, "role": "worker", "step_p50_ns": 5_000_000}])
    made = models.table({"mlp": shown}, {"mlp": 101_770})
    (row,) = made.rows
    cells = dict(zip(made.columns, row, strict=True))
    assert cells["parameters"] == "101,770"
    assert (cells["steps"], cells["step p50, ms"], cells["first -> last loss"]) == ("601", "5", "- -> -")
    assert any(title.endswith(", s") and title != "wall, s" for title in made.columns)


def test_a_remedy_that_was_tried_goes_into_its_page(tmp_path: Path) -> None:
    def side(label: str, loop_s: float, saves_ns: int, **platform: Any) -> RunSet:
        finding = Finding("close-retry", "hdfs", "", saves_ns, saves_ns, saves_ns, True, (), "", "")
        late = label == "after 40 ms"
        every = [record(2 * n + late, 18.0 + n / 10, loop_s, platform=platform) for n in range(6)]
        runs = [
            dataclasses.replace(run, findings=(finding,), wall_ns=run.window.end_ns - run.window.start_ns)
            for run in every
            if run.window
        ]
        return without_series(label, runs)

    sides = (side("after 400 ms", 7.0, 4 * 10**9), side("after 40 ms", 3.0, 10**8, hadoop_settings="a=40"))
    with pytest.raises(UsageError, match="hadoop_settings None and a=40"):
        remedies.write("close-retry", "close-retry", sides, [], tmp_path, [])
    page = remedies.write("close-retry", "close-retry", sides, [], tmp_path, ["machine"])
    text = page.read_text()
    assert "| after 400 ms | 6 | 27.2 [27.0 to 27.5] | 4.0 [4.0 to 4.0] |" in text
    assert "| after 40 ms | 6 | 23.2 [23.0 to 23.5] | 0.1 [0.1 to 0.1] |" in text
    assert "After 40 ms against after 400 ms, by `dlobd compare`: wall: faster, -4.000 s" in text


@pytest.mark.parametrize(
    ("busy", "loaded", "code", "measured"), [(60.0, False, 8, 0), (60.0, True, 0, 1), (3.0, False, 0, 1)]
)
def test_a_busy_machine_is_refused_without_loaded(
    busy: float, loaded: bool, code: int, measured: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(series_runner, "busy_percent", lambda seconds: busy)
    monkeypatch.setattr(signal, "signal", lambda *words: None)
    asked = command.parser("x", None, repeats=5).parse_args(["--loaded"] * loaded)
    made: list[int] = []

    def measure(asked: Any, progress: Any) -> list[Path]:
        made.append(asked.repeats)
        return [asked.docs / "x.md"]

    assert command.run(asked, "x", measure) == code
    assert made == [5] * measured
    printed = capsys.readouterr()
    assert ("60 % busy. Next: end other programs, or run make x LOADED=1" in printed.err) == (not measured)
    assert printed.out == ("Wrote docs/x.md\n" if measured else "")


def test_an_interrupted_or_failing_measurement_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(series_runner, "busy_percent", lambda seconds: 0.0)
    monkeypatch.setattr(signal, "signal", lambda *words: None)
    asked = command.parser("x", None).parse_args([])
    for raised, code, said in ((KeyboardInterrupt(), 130, "interrupted"), (UsageError("Why."), 2, "Why.")):

        def measure(asked: Any, progress: Any, raised: BaseException = raised) -> list[Path]:
            raise raised

        assert command.run(asked, "x", measure) == code
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line


def test_the_main_job_is_compared_by_every_launcher_and_both_inputs() -> None:
    every = stack_overhead.points("softmax-mnist", stack_overhead.WAYS)
    assert {point.launcher for point in every.values()} == set(LAUNCHERS.names()) - {"torch-distributor"}
    assert {"native", "tfos feed", "tfos read", "barrier feed", "barrier read", "distributor read"} < set(every)
    for each in (every, amortisation.points("softmax-mnist", amortisation.WAYS, (1, 3))):
        made = [run_of(configuration=dataclasses.asdict(point)) for point in each.values()]
        studied.check_same_work(made, also=("epochs",))
    with pytest.raises(UsageError, match="needs native runs"):
        stack_overhead.points("softmax-mnist", ["tfos"])


def test_stack_overhead_goes_into_its_page(tmp_path: Path) -> None:
    native, stack = {"tensorflow": 10.0}, {"yarn": 3.0, "spark": 17.0, "tensorflow": 10.0}
    both = (("native", native), ("tfos feed", stack))
    every = [member(r, 2 * r + i, experiment(way), layers) for r in range(1, 7) for i, (way, layers) in enumerate(both)]
    found = overhead_of(runset(every))
    made = stack_overhead.write(found, [one.run for one in every], [3.0] * 12, tmp_path / "docs")
    assert all(path.exists() for path in made)
    page = (tmp_path / "docs" / publish.PAGE).read_text()
    assert "| tfos feed | 6 | 30 (30 to 30) | 20 (20 to 20) | 3 (3 to 3) | 3 (3 to 3) | 10.0 |" in page
    assert "(stack_overhead.svg)" in page
    assert "15.5 %" in page
    assert "cores busy before a run: median 3 %" in page


def test_amortisation_goes_into_its_page(tmp_path: Path) -> None:
    every = [
        member(
            repeat,
            6 * repeat + place,
            experiment(way, epochs=epochs),
            {"tensorflow": fixed + epochs},
            epochs,
            [1.0] * epochs,
        )
        for repeat in range(1, 7)
        for place, (way, fixed, epochs) in enumerate(
            (way, fixed, epochs) for way, fixed in (("native", 9.0), ("tfos feed", 30.0)) for epochs in (1, 2, 3)
        )
    ]
    every.append(member(7, 59, experiment("native", epochs=50), {"tensorflow": 59.0}, 50.0, [1.0] * 50))
    bad = dataclasses.replace(every[-1].run, run_id="20260102T040000Z-0a1b", status="failed", reason="died")
    every.append(dataclasses.replace(every[-1], run=bad, repeat=every[-1].repeat._replace(number=8)))
    made = amortisation.write(amortised(runset(every)), [one.run for one in every], [], tmp_path / "docs")
    assert all(path.exists() for path in made)
    page = (tmp_path / "docs" / publish.PAGE).read_text()
    assert "| tfos feed | 6 | 30 (30 to 30) | 1 (1 to 1) | 411 (411 to 411) |" in page
    assert "| 59 | 59 (59 to 59) | inside |" in page
    assert "- **Left out: 1 of 38 runs: run 20260102T040000Z-0a1b is failed: died.**" in page


STEPS = {
    "role": "chief",
    "index": 0,
    "steps": 601,
    "step_p50_ns": 4_000_000,
    "step_p99_ns": None,
    "step_max_ns": 9_000_000,
}
