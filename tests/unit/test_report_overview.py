"""One screen says what a run's result is, whatever the run is like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dlobd.record.run import Finding, Plane, Run
from dlobd.report import sentences, text
from dlobd.report.headline import TENTH_NS, headline, tenths, tenths_of_parts
from dlobd.report.terminal.overview import LINES, lines, overview
from dlobd.report.terminal.views import findings
from tests.captured import NAMES, Captured

S = 10**9


def run_of(capture: str) -> Run:
    return Run.from_json(Captured.bundle(capture).read().to_json() | Captured.computed(capture))


def loud(name: str, saves_s: float = 9.0, evidence: int = 3) -> Finding:
    words = " ".join(["several words of a remedy"] * 8)
    return Finding(
        name,
        "yarn",
        f"{name.capitalize()} took long.",
        9 * S,
        round(saves_s * S),
        S,
        True,
        ("e",) * evidence,
        words,
        words,
    )


@pytest.mark.parametrize("capture", NAMES)
def test_every_run_fits_one_screen(capture: str) -> None:
    run = run_of(capture)
    shown = [words for words, _ in lines(run)]
    assert len(shown) <= LINES
    assert max(map(len, shown)) <= text.WIDTH
    whole = " ".join(" ".join(shown).split())
    assert " ".join(sentences.verdict(run).split()) in whole
    for layer in run.layers:
        rounded = tenths_of_parts(run)[1][layer.layer]
        assert f"{rounded // 10}.{rounded % 10}" in whole or not rounded


def test_a_run_with_much_to_say_still_fits() -> None:
    run = run_of("quick-run")
    full = replace(
        run,
        findings=tuple(loud(f"cause-{number}") for number in range(12)),
        warnings=tuple(f"warning {number} {'with many words ' * 20}" for number in range(30)),
    )
    shown = [words for words, _ in lines(full)]
    assert len(shown) <= LINES
    assert "warning: warning 0 with" in "\n".join(shown)
    assert any("Cause-0 took long." in words for words in shown)
    assert "and 26 more: dlobd show --full" in shown


def test_failed_and_impossible_checks_are_listed() -> None:
    run = run_of("quick-run")
    assert not any("check" in words for words, _ in lines(run))
    done, failed, impossible = run.checks[:3]
    checks = (
        done,
        replace(impossible, verdict="unknown", message="the audit log is missing"),
        replace(failed, verdict="fail", message="Spark read 9 bytes of input; the files have 10"),
    )
    shown = [words for words, _ in lines(replace(run, checks=checks)) if "check" in words]
    assert shown == [
        "check failed: Spark read 9 bytes of input; the files have 10",
        "check impossible: the audit log is missing",
    ]


def test_a_run_without_findings_says_so() -> None:
    run = run_of("quick-run")
    below = replace(loud("cause"), above_noise=False)
    assert run.wall_ns
    none = (
        f"No setting is expected to save more than run-to-run noise: {run.wall_ns / 1e10:.1f} s, assumed to be 10 % of "
        "the wall time for lack of earlier runs here."
    )
    for found in ((below,), ()):
        shown = " ".join(words for words, _ in lines(replace(run, findings=found)))
        assert none in " ".join(shown.split())


def test_a_run_without_a_window_says_why() -> None:
    failed = replace(
        run_of("quick-run"),
        status="failed",
        reason="no cluster",
        wall_ns=None,
        layers=(),
        unattributed_ns=None,
        window=None,
        findings=None,
    )
    shown = "\n".join(words for words, _ in lines(failed))
    assert "The run is failed: no cluster." in shown
    assert sentences.FINDINGS_TITLE not in shown
    assert headline(replace(failed, status="ok")) == "Nothing was measured."


def test_by_what_the_gradients_went_is_said() -> None:
    soft = Plane(
        plane="exchange",
        kind="verbs",
        device="rxe0:1",
        interface="",
        addresses=(),
        soft=True,
        asked="rdma",
        agrees=True,
        evidence=(),
    )
    shown = " ".join(" ".join(words for words, _ in lines(replace(run_of("quick-run"), transport=(soft,)))).split())
    assert "Gradient exchange: verbs over rxe0:1, Soft-RoCE in software" in shown


def test_it_is_readable_without_colours_and_blocks(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("w", encoding="ascii") as out:
        overview(run_of("quick-run"), Console(file=out, width=80))
    assert "####" in path.read_text()


def test_the_view_of_findings_has_evidence_remedy_and_page() -> None:
    run = replace(run_of("quick-run"), findings=(loud("cause"), replace(loud("small", 0.5), above_noise=False)))
    console = Console(width=80, record=True)
    with console.capture() as captured:
        findings(run, console)
    shown = " ".join(captured.get().split())
    for words in ("1. Cause took long.", "Saves 1.0 to 9.0 s.", "Remedy:", "Unless:", "docs/findings.md#cause"):
        assert words in shown
    assert "0.500 Small took long. Remedy:" in shown


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=8))
def test_rounded_parts_sum_to_the_rounded_wall(parts_ns: list[int]) -> None:
    total, parts = tenths(sum(parts_ns), parts_ns)
    assert sum(parts) == total
    assert all(abs(part * TENTH_NS - ns) < TENTH_NS for part, ns in zip(parts, parts_ns, strict=True))
