"""Run sets from series, directories and bundles; different environments; comparisons as text and JSON; gates."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from dlobd import cli
from dlobd.bundle.store import Bundle
from dlobd.compare import compatibility
from dlobd.compare.comparison import Comparison, compare
from dlobd.compare.gate import gate
from dlobd.compare.runset import pairs, read
from dlobd.errors import UsageError
from dlobd.report import comparison as view
from tests import repeats as made

HDFS_S, SPARK_S = 4.0, 20.0


def series(
    out: Path,
    factors: dict[str, dict[str, float]],
    repeats: int = 10,
    seed: int = 0,
    changes: Callable[[str, int], dict[str, Any]] = lambda way, repeat: {},
    settings: Sequence[tuple[str, Any]] = (),
) -> Path:
    """Write a series; `factors` lengthen layers, which scatter by 2 %, and repeats drift by 10 %."""
    random = np.random.default_rng(seed)
    runs = []
    for repeat in range(1, repeats + 1):
        drift = random.normal(1, 0.1)
        for way, larger in factors.items():
            layers = {
                name: seconds * drift * larger.get(name, 1) * random.normal(1, 0.02)
                for name, seconds in (("spark", SPARK_S), ("hdfs", HDFS_S))
            }
            chosen = made.experiment(way, **dict(settings))
            number = len(runs) + seed * 500
            runs.append((repeat, made.record(number, chosen, layers, **changes(way, repeat))))
    return made.on_disk(out, runs)


def compared(path: Path, *allowed: str, margin: float = 0.05) -> Comparison:
    return compare(pairs(str(path), None, Path("none")), margin, allowed)


def text_of(found: Comparison) -> str:
    console = Console(width=80, record=True, file=io.StringIO(), highlight=False)
    view.show(found, console)
    return console.export_text()


def test_points_of_a_series_are_compared_within_its_repeats(tmp_path: Path) -> None:
    found = compared(series(tmp_path, {"tfos feed": {}, "barrier feed": {"spark": 1.1}}))
    (pair,) = found.pairs
    assert (pair.baseline, pair.candidate, pair.paired) == ("tfos-feed-2", "barrier-feed-2", True)
    assert dict(pair.differing) == {"launcher": ("tfos", "barrier")}
    assert "launcher" not in found.common
    assert found.common["input"] == "feed"
    assert (pair.wall.verdict, pair.layers["spark"].verdict) == ("slower", "slower")
    assert pair.layers["hdfs"].verdict in ("equivalent", "inconclusive")
    assert set(pair.layers) == {"spark", "hdfs"}
    assert sum(one.difference_ns for one in pair.layers.values()) == pytest.approx(pair.wall.difference_ns)
    assert (found.fewest_wall, found.fewest_layers) == (6, 7)
    line = f"barrier-feed-2 against tfos-feed-2: wall time slower, {pair.wall.difference_ns / 1e9:+.3f} s"
    assert repr(found) == f"<comparison of {line}>"
    html = found._repr_html_()
    assert html.startswith(f"<p>{line}</p><table")
    assert f"<td>Spark</td>\n      <td>{pair.layers['spark'].baseline_ns / 1e9:.3f}".rstrip("0") in html


def test_other_runs_are_two_samples(tmp_path: Path) -> None:
    """Two series, and directories of bundles: without pairs the drift of 10 % hides the same +10 %."""
    one = series(tmp_path / "one", {"tfos feed": {}}, seed=1)
    other = series(tmp_path / "other", {"barrier feed": {"spark": 1.1}}, seed=2)
    for first, second in ((one, other), (one.parent / "tfos-feed-2", other.parent / "barrier-feed-2")):
        found = compare(pairs(str(first), str(second), tmp_path), 0.05, (compatibility.ORDER,))
        (pair,) = found.pairs
        assert not pair.paired
        assert pair.wall.runs == (10, 10)
        assert pair.wall.verdict == "inconclusive"
        assert pair.wall.runs_needed > 10
        assert "The sides ran in different repeats" in text_of(found)


def test_points_with_equal_labels_of_two_sweeps_are_pairs(tmp_path: Path) -> None:
    ways: dict[str, dict[str, float]] = {"tfos feed": {}, "barrier feed": {}, "native": {}}
    one, other = (series(tmp_path / name, ways, 4, seed) for seed, name in enumerate("ab"))
    found = compare(pairs(str(one), str(other), tmp_path), 0.05, (compatibility.ORDER,))
    assert [pair.baseline for pair in found.pairs] == [pair.candidate for pair in found.pairs]
    assert len(found.pairs) == 3
    assert found.fewest_wall == 5
    chosen = pairs(f"{one}:native-2", f"{other}:tfos-feed-2", tmp_path)
    (pair,) = compare(chosen, 0.05, (compatibility.ORDER,)).pairs
    assert (pair.baseline, pair.candidate) == ("native-2", "tfos-feed-2")
    with pytest.raises(UsageError, match="has no point 'spark'"):
        pairs(f"{one}:spark", str(other), tmp_path)
    single = series(tmp_path / "c", {"tfos read": {}}, 4, 3)
    with pytest.raises(UsageError, match="several points"):
        pairs(str(one), str(single), tmp_path)
    with pytest.raises(UsageError, match="a single point"):
        pairs(str(single), None, tmp_path)


def test_an_unusable_run_is_listed_and_excludes_its_repeat(tmp_path: Path) -> None:
    def changes(way: str, repeat: int) -> dict[str, Any]:
        return {"status": "failed", "reason": "a rank died"} if (way, repeat) == ("native", 3) else {}

    found = compared(series(tmp_path, {"tfos feed": {}, "native": {}}, changes=changes))
    (pair,) = found.pairs
    assert pair.wall.runs == (9, 9)
    failed, other = pair.left_out
    assert "is failed: a rank died" in failed
    assert "is not usable" in other
    assert failed in text_of(found).replace("\n", " ")


def test_different_environments_are_refused_unless_allowed_and_then_printed_first(tmp_path: Path) -> None:
    platform = {"host": "a", "kernel": "1", "cores": 2}
    counted = ("spans", "lines", "lost_lines", "left_out", "flush_ns", "flush_cpu_ns", "span_bytes", "log_bytes")
    cost = dict.fromkeys((*counted, "span_cost_ns", "chain_spans", "chain_ns"), 1) | {"chain_share": 0.0, "loop": None}
    cases: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "machine": ({"platform": platform}, {"platform": platform | {"kernel": "2"}}),
        "versions": ({"versions": {"java": "17"}}, {"versions": {"java": "21"}}),
        "code": ({"git": {"commit": "1" * 40, "dirty": False}}, {"git": {"commit": "2" * 40, "dirty": False}}),
        "recording": ({"overhead": {"recording": "on", **cost}}, {"overhead": {"recording": "off", **cost}}),
        "page-cache": ({"page_cache": cached(100)}, {"page_cache": cached(0)}),
    }
    assert set(cases) == set(compatibility.KINDS) - {compatibility.BUSY, compatibility.ORDER}
    for kind, (one, other) in cases.items():
        path = series(
            tmp_path / kind,
            {"tfos feed": {}, "native": {}},
            changes=lambda way, repeat, one=one, other=other: one if way == "native" else other,
        )
        with pytest.raises(UsageError, match=f"from different environments: {kind}: .*--allow {kind}"):
            compared(path)
        text = text_of(compared(path, kind))
        assert text.startswith(f"DIFFERENT ENVIRONMENTS, {kind}: ")


def test_a_baseline_that_ran_before_its_candidate_is_refused_unless_allowed(tmp_path: Path) -> None:
    """A drift would look like a difference. Alternating runs, and runs in random order, are accepted."""
    one, other = (str(series(tmp_path / name, {"native": {}}, 6, seed)) for seed, name in enumerate("ab"))
    with pytest.raises(UsageError, match=r"order: one side ran after the other.*--allow order"):
        compare(pairs(one, other, tmp_path), 0.05)
    found = compare(pairs(one, other, tmp_path), 0.05, (compatibility.ORDER,))
    assert text_of(found).startswith("DIFFERENT ENVIRONMENTS, order: ")
    runs = [run for name in (one, other) for run in read(name, tmp_path).runs]
    assert compatibility.order(runs[::2], runs[1::2]) == []
    refused = 0
    for seed in range(200):
        drawn = np.random.default_rng(seed).permutation(12)
        refused += bool(compatibility.order([runs[n] for n in drawn[:6]], [runs[n] for n in drawn[6:]]))
    assert refused < 10


def cached(resident: int) -> dict[str, Any]:
    return {"asked": "as-is", "resident_bytes": resident, "total_bytes": 100, "before_resident_bytes": 0}


def test_a_requested_page_cache_state_is_a_setting(tmp_path: Path) -> None:
    def changes(way: str, repeat: int) -> dict[str, Any]:
        return {"page_cache": cached(100)}

    warm = series(tmp_path / "warm", {"native": {}}, 6, 0, changes, [("page_cache", "warm")])
    cold = series(
        tmp_path / "cold", {"native": {}}, 6, 1, lambda *_: {"page_cache": cached(0)}, [("page_cache", "cold")]
    )
    (pair,) = compare(pairs(str(cold), str(warm), tmp_path), 0.05, (compatibility.ORDER,)).pairs
    assert dict(pair.differing) == {"page_cache": ("cold", "warm")}


def test_runs_of_a_busy_machine_count_only_if_allowed(tmp_path: Path) -> None:
    path = series(tmp_path, {"tfos feed": {}, "native": {}})
    document = json.loads(path.read_text())
    document["begun"][0]["busy_percent"] = 60.0
    path.write_text(json.dumps(document))
    (pair,) = compared(path).pairs
    assert pair.wall.runs == (9, 9)
    assert "60 % of the cores were busy" in pair.left_out[0]
    assert compared(path, compatibility.BUSY).pairs[0].wall.runs == (10, 10)


def test_the_text_fits_and_states_its_power(tmp_path: Path) -> None:
    text = text_of(compared(series(tmp_path, {"tfos feed": {}, "native": {"hdfs": 1.5}})))
    assert max(map(len, text.splitlines())) <= 80
    (pair,) = (alike := compared(series(tmp_path / "alike", {"tfos feed": {}, "native": {}}, 6))).pairs
    long = replace(pair.wall, baseline_ns=1234e9, candidate_ns=1234e9 + 987, verdict="inconclusive")
    widest = text_of(replace(alike, pairs=(replace(pair, layers={"client": long, "tensorflow": long}),))).splitlines()
    assert max(map(len, widest)) <= 80
    assert any(line.split()[:2] == ["dlobd", "client"] and line.split()[-1] == "inconclusive" for line in widest)
    words = " ".join(text.split())
    assert words.count("model softmax-regression") == 1
    assert "launcher: tfos -> native" in text
    (wall,) = (line for line in text.splitlines() if line.startswith("wall: slower, +"))
    assert "%" in wall
    assert "needs at least 6 repeats for the wall time, 7 for layers" in words
    assert "False differences occur in at most 5 % of comparisons" in words


def test_a_layer_that_some_runs_did_not_measure_is_listed(tmp_path: Path) -> None:
    def changes(way: str, repeat: int) -> dict[str, Any]:
        row = {"layer": "channel", "inside": "tensorflow", "why": "gRPC runs inside a step"}
        return {"not_measured": [row] if way == "native" else []}

    (pair,) = (found := compared(series(tmp_path, {"tfos feed": {}, "native": {}}, changes=changes))).pairs
    assert pair.unknown == ("channel",)
    assert "Not compared, because some runs did not measure it: Channel" in text_of(found)


def test_a_layer_without_a_part_in_a_run_took_no_time(tmp_path: Path) -> None:
    def changes(way: str, repeat: int) -> dict[str, Any]:
        row = {"layer": "spark", "inside": "", "why": "not used by this kind of run: plain processes on local files"}
        return {"not_measured": [row] if way == "native" else []}

    made = series(tmp_path, {"native": {"spark": 0.0}, "tfos feed": {}}, changes=changes)
    (pair,) = (found := compared(made)).pairs
    assert pair.unknown == ()
    spark = pair.layers["spark"]
    assert (spark.baseline_ns, spark.verdict, spark.difference_share) == (0, "slower", None)
    assert spark.candidate_ns > 0
    assert any(line.startswith("Spark") for line in text_of(found).splitlines())


@pytest.mark.parametrize(
    ("factors", "repeats", "outcome", "grown"),
    [
        ({}, 10, "pass", []),
        ({"hdfs": 1.5}, 10, "regression", ["hdfs"]),
        ({"spark": 1.2}, 10, "regression", ["spark", "wall"]),
        ({"spark": 0.8}, 10, "pass", []),
        ({}, 4, "inconclusive", []),
    ],
)
def test_a_gate_fails_for_significant_growth_and_names_the_layer(
    tmp_path: Path, factors: dict[str, float], repeats: int, outcome: str, grown: list[str]
) -> None:
    found = gate(compared(series(tmp_path, {"tfos feed": {}, "native": factors}, repeats), margin=0.07))
    assert found.outcome == outcome
    assert sorted(one.name for one in found.grown if one.name != "wall" or "wall" in grown) == grown
    assert (found.runs_needed is not None) == (outcome == "inconclusive")
    assert bool(view.reasons(found)) == (outcome != "pass")


def test_check_has_an_exit_code_for_each_outcome(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, same, worse = (
        series(tmp_path / name, {"tfos feed": factors}, 30, seed)
        for seed, (name, factors) in enumerate({"a": {}, "b": {}, "c": {"hdfs": 3.0}}.items())
    )
    few = series(tmp_path / "few", {"tfos feed": {}}, 4, 4)
    limit = ("--max-regression", "20%")
    assert cli.main(["check", str(same), "--against", str(base), *limit]) == 0
    assert cli.main(["check", str(worse), "--against", str(base), *limit]) == 9
    assert "HDFS: slower" in capsys.readouterr().err
    assert cli.main(["check", str(few), "--against", str(base)]) == 10
    said = capsys.readouterr().err
    assert "undecided" in said
    assert "run each series" in said
    assert cli.main(["check", str(same), "--against", str(base), *limit, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "pass"
    assert cli.main(["check", str(same), "--against", str(base), "--max-regression", "much"]) == 2


def test_compare_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(series(tmp_path, {"tfos feed": {}, "native": {"hdfs": 1.5}}))
    assert cli.main(["compare", path, "--json", "--margin", "0.1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["margin"] == 0.1
    (pair,) = document["pairs"]
    assert pair["layers"]["hdfs"]["verdict"] == "slower"
    assert cli.main(["compare", path]) == 0
    assert "HDFS" in capsys.readouterr().out
    assert cli.main(["compare", path, "--allow", "weather"]) == 2
    assert "Unknown kind 'weather'" in capsys.readouterr().err


def test_single_runs_are_compared_and_directories_of_several_experiments_refused(tmp_path: Path) -> None:
    series(tmp_path, {"tfos feed": {}, "native": {}}, 4)
    first, second = (next((tmp_path / way).iterdir()) for way in ("tfos-feed-2", "native-2"))
    (pair,) = compare(pairs(str(first), second.name, tmp_path), 0.05).pairs
    assert (pair.wall.verdict, pair.wall.runs) == ("inconclusive", (1, 1))
    with pytest.raises(UsageError, match="several experiments"):
        read(str(tmp_path), tmp_path)
    path = series(tmp_path / "none", {"native": {}}, 1)
    for bundle in (tmp_path / "none" / "native-2").iterdir():
        (Bundle(bundle).path / "hashes").unlink()
    with pytest.raises(UsageError, match="no finished run"):
        read(str(path), tmp_path)


def test_a_run_is_not_compared_with_itself(tmp_path: Path) -> None:
    path = series(tmp_path, {"tfos feed": {}, "native": {}})
    run = next((path.parent / "native-2").iterdir())
    with pytest.raises(UsageError, match=f"have the same run, {run.name}: there is no difference") as refused:
        compare(pairs(str(run), str(run), tmp_path))
    assert refused.value.line.count(run.name) == 1
    with pytest.raises(UsageError, match="have the same 10 runs"):
        compare(pairs(str(path), str(path), tmp_path))


def test_one_run_a_side_has_differences_and_one_line_about_what_is_missing(tmp_path: Path) -> None:
    path = series(tmp_path, {"tfos feed": {}, "native": {}})
    sides = [str(next((path.parent / name).iterdir())) for name in ("tfos-feed-2", "native-2")]
    lines = text_of(compare(pairs(*sides, tmp_path))).splitlines()
    assert not any(line.split()[-1:] == ["-"] for line in lines), "no cell without a value"
    (missing,) = [line for line in lines if "Too few runs" in line]
    assert missing == "Too few runs for a verdict: it needs at least 4 runs of each side (--repeats)."
    assert "How to read it" not in lines
    assert next(place for place, line in enumerate(lines) if line.startswith("Machine")) > lines.index(missing)


def test_a_refusal_counts_runs_by_their_reason(tmp_path: Path) -> None:
    def changes(way: str, repeat: int) -> dict[str, Any]:
        return {"status": "failed", "reason": "a rank died"} if way == "native" else {}

    path = series(tmp_path, {"tfos feed": {}, "native": {}}, changes=changes)
    with pytest.raises(UsageError) as refused:
        compare(pairs(str(path), None, tmp_path))
    what = "native-2: no run can be compared: 10 of 10 is failed: a rank died."
    assert refused.value.line == f"{what} Next: compare runs with status ok"
    run = next((path.parent / "native-2").iterdir())
    with pytest.raises(UsageError) as refused:
        compare(pairs(str(run), f"{path}:tfos-feed-2", tmp_path))
    assert refused.value.line.count(run.name) == 1
