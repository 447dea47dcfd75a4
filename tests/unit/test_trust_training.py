"""Checks of the training result: a captured good run passes, and each fault fails its check."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlobd.evidence.evidence import Evidence
from dlobd.experiment import files
from dlobd.record.run import Check
from dlobd.schema import Clip, Experiment
from dlobd.trust import completeness, training
from dlobd.trust.base import Facts

DATA = Path(__file__).parents[1] / "data"
WALL_NS = 10**10
Results = dict[str, dict[str, Any]]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    shutil.copytree(DATA / "quick-run" / "evidence", tmp_path / "evidence")
    return tmp_path


def main() -> Experiment:
    return files.load("softmax-mnist-quick")


def change(bundle: Path, how: Callable[[Results], None]) -> None:
    path = bundle / "evidence" / "markers.json"
    results = {name: json.loads(text) for name, text in json.loads(path.read_text()).items()}
    how(results)
    path.write_text(json.dumps({name: json.dumps(result) for name, result in results.items()}))


def found(bundle: Path, clips: tuple[Clip, ...] = (), wanted: Experiment | None = None) -> list[Check]:
    facts = Facts(Evidence(bundle), wanted or main(), clips, WALL_NS, None, ())
    rules = (*training.RULES, *completeness.RULES)
    return [check for rule in rules if rule.code != "steps-recorded" and (check := rule.decide(facts))]


def failed(bundle: Path, clips: tuple[Clip, ...] = (), wanted: Experiment | None = None) -> list[str]:
    return [check.code for check in found(bundle, clips, wanted) if check.verdict == "fail"]


def _set(rank: int, key: str, value: Any) -> Callable[[Results], None]:
    def how(results: Results) -> None:
        results[f"rank-{rank}.json"][key] = value

    return how


def _say(*told: dict[str, Any]) -> Callable[[Results], None]:
    def how(results: Results) -> None:
        for rank, said in enumerate(told):
            results[f"rank-{rank}.json"].update(said)

    return how


def _loss(change: Callable[[list[float]], list[float]], *ranks: int) -> Callable[[Results], None]:
    def how(results: Results) -> None:
        for rank in ranks:
            result = results[f"rank-{rank}.json"]
            result["losses"] = change(result["losses"])

    return how


@pytest.mark.parametrize(
    ("how", "named"),
    [
        (lambda results: results.pop("rank-1.json"), ["ranks-reported"]),
        (_set(1, "steps", 29), ["steps"]),
        (_set(0, "samples", 2_900), ["samples"]),
        (_loss(lambda losses: [*losses[:-1], math.nan], 1), ["loss-finite"]),
        (_loss(lambda losses: [math.inf, *losses[1:]], 0), ["loss-finite"]),
        (_loss(lambda losses: [losses[0] + 0.1, *losses[1:]], 1), ["loss-equal"]),
        (_loss(lambda losses: losses[:-1], 1), ["loss-equal"]),
        (_loss(lambda losses: losses[::-1], 0, 1), ["loss-falls"]),
        (_loss(lambda losses: [2.3] * len(losses), 0, 1), ["loss-falls"]),
        (_loss(lambda losses: [], 0, 1), ["loss-falls"]),
        (_set(0, "test", None), ["test-samples"]),
        (_set(0, "test", {"samples": 1_999, "accuracy": 0.9}), ["test-samples"]),
        (_set(0, "test", {"samples": 2_000, "accuracy": 0.1}), ["test-accuracy"]),
        (_set(0, "test", {"samples": 2_000, "accuracy": math.nan}), ["test-accuracy"]),
    ],
)
def test_each_fault_is_found_and_named(bundle: Path, how: Callable[[Results], None], named: list[str]) -> None:
    change(bundle, how)
    assert failed(bundle) == named


def test_figures_are_numbers_that_json_has(bundle: Path) -> None:
    change(bundle, _set(0, "test", {"samples": 2_000, "accuracy": math.nan}))
    check = next(check for check in found(bundle) if check.code == "test-accuracy")
    assert (check.verdict, check.left, check.right) == ("fail", None, main().min_accuracy)
    assert "nan" in check.message


def test_without_results_no_rank_reported(bundle: Path) -> None:
    path = bundle / "evidence" / "markers.json"
    path.write_text(path.read_text()[:-20])
    assert failed(bundle) == ["ranks-reported"]
    path.unlink()
    assert failed(bundle) == ["ranks-reported"]


def test_other_experiments_and_contradictions_fail(bundle: Path) -> None:
    assert failed(bundle, wanted=dataclasses.replace(main(), epochs=2)) == ["steps", "samples"]
    small, large = [Clip("inconsistent", "1", ns) for ns in (WALL_NS // 100, WALL_NS // 100 + 1)]
    assert failed(bundle, (small, Clip("outside window", "2", WALL_NS))) == []
    assert failed(bundle, (large,)) == ["evidence-consistent"]


@pytest.mark.parametrize(
    ("limits", "said", "held"),
    [
        ({"epochs": 10, "max_steps": 30}, {}, True),
        ({"epochs": 10, "max_steps": 31}, {}, False),
        ({"epochs": 10, "max_seconds": 3}, {"loop_ns": 3 * 10**9}, True),
        ({"epochs": 10, "max_seconds": 3}, {"loop_ns": 3 * 10**9 - 1}, False),
        ({"epochs": 10, "target_accuracy": 0.8}, {"evaluations": [{"epoch": 1, "samples": 10, "right": 8}]}, True),
        ({"epochs": 10, "target_accuracy": 0.8}, {"evaluations": [{"epoch": 1, "samples": 10, "right": 7}]}, False),
        ({"epochs": 10}, {"loop_ns": 10**12, "evaluations": [{"epoch": 1, "samples": 10, "right": 10}]}, False),
    ],
)
def test_a_run_may_end_early_for_a_reason(
    bundle: Path, limits: dict[str, Any], said: dict[str, Any], held: bool
) -> None:
    change(bundle, _say(said, said))
    wanted = dataclasses.replace(main(), **limits)
    assert failed(bundle, wanted=wanted) == ([] if held else ["steps", "samples"])


def test_all_ranks_end_with_the_same_step(bundle: Path) -> None:
    change(bundle, _say({"loop_ns": 10**10}, {"steps": 29}))
    assert failed(bundle, wanted=dataclasses.replace(main(), epochs=10, max_seconds=3)) == ["steps"]
    reached = {"evaluations": [{"epoch": 1, "samples": 10, "right": 9}], "steps": 60}
    change(bundle, _say(reached, reached))
    assert failed(bundle, wanted=dataclasses.replace(main(), epochs=10, target_accuracy=0.9)) == ["steps"]
