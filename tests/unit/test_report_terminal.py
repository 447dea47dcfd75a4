"""The terminal report, whole: what a person sees, in 80 columns and without colour.

The expected text lies in tests/golden. After a wanted change, `python -m tests.unit.test_report_terminal` writes it
anew; read the difference before it is committed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from dlobd.record.run import Failure, Finding, Plane, Run
from dlobd.report import sentences, text
from dlobd.report.first_screen import TENTH_NS, WORDS, first_screen, layer_words, tenths
from dlobd.report.terminal.overview import MOST_FINDINGS, overview, several
from dlobd.report.terminal.views import anatomy, breakdown, findings, resources, words
from dlobd.run import machine_noise
from tests.captured import NAMES, Captured

GOLDEN = Path(__file__).parents[1] / "golden"
RECORD = json.loads((GOLDEN / "run.json").read_text())
FAILED = deepcopy(RECORD) | {
    "status": "failed",
    "reason": "the trainer of worker 1 was killed by signal 9 in step 117",
    "window": None,
    "wall_ns": None,
    "layers": [],
    "unattributed_ns": None,
    "checks": [
        {
            **RECORD["checks"][0],
            "verdict": "fail",
            "message": "the ranks recorded 1,200 step spans; they report 1,199 steps",
            "right": 1199,
        },
        *RECORD["checks"][1:],
    ],
    "noise": None,
    "startup": RECORD["startup"][:3],
    "teardown": [],
}
VIEWS: dict[str, tuple[Callable[[Run, Console], None], dict[str, Any]]] = {
    "breakdown.txt": (breakdown, RECORD),
    "anatomy.txt": (anatomy, RECORD),
    "breakdown-failed.txt": (breakdown, FAILED),
    "anatomy-failed.txt": (anatomy, FAILED),
    "resources.txt": (resources, RECORD),
}


def render(view: Callable[[Run, Console], None], run: dict[str, Any], width: int = 80, **options: Any) -> str:
    text = io.StringIO()
    view(Run.from_json(run), Console(file=text, width=width, **options))
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


@pytest.mark.parametrize("name", VIEWS)
def test_the_whole_report_is_as_agreed(name: str) -> None:
    assert render(*VIEWS[name]) == (GOLDEN / name).read_text()


@pytest.mark.parametrize("name", VIEWS)
def test_lines_follow_the_width_of_the_terminal(name: str) -> None:
    lengths = {
        width: max(cell_len(line) for line in render(*VIEWS[name], width=width).splitlines())
        for width in (80, 100, 200)
    }
    assert lengths[80] <= 79
    assert lengths[80] <= lengths[100] <= 99
    assert lengths[100] <= lengths[200] <= text.MOST_COLUMNS


def test_colour_adds_nothing_that_is_not_readable_without() -> None:
    text = io.StringIO()
    console = Console(file=text, width=80, force_terminal=True, color_system="truecolor", record=True)
    breakdown(Run.from_json(RECORD), console)
    assert "\x1b[" in text.getvalue()
    plain = "".join(f"{line.rstrip()}\n" for line in console.export_text().splitlines())
    assert plain == (GOLDEN / "breakdown.txt").read_text()


def test_wrong_sums_and_inconsistent_evidence_are_warnings() -> None:
    run = deepcopy(RECORD) | {"unattributed_ns": RECORD["unattributed_ns"] - 7}
    text = render(breakdown, run)
    assert "warning: the parts do not sum to the wall time: 7 ns are missing." in text
    assert "ns != wall 50,000,000,000 ns" in text
    run = deepcopy(RECORD) | {"clips": [{"kind": "inconsistent", "span": "a", "ns": 5}], "unattributed_ns": 3 * 10**9}
    text = render(breakdown, run)
    assert "warning: the evidence is inconsistent in 1 places" in text
    assert "warning: more than 5 % of the wall time is unexplained." in text
    assert "warning: a line of the record itself" in render(
        breakdown, run | {"warnings": ["a line of the record itself"]}
    )


COUNTED = dict.fromkeys(["lines", "lost_lines", "left_out", "span_bytes", "log_bytes", "chain_spans"], 0)
OVERHEAD = COUNTED | {"recording": "on", "span_cost_ns": 2_100, "spans": 18_412, "flush_ns": None, "flush_cpu_ns": None}
OVERHEAD |= {"chain_ns": 10_500_000, "chain_share": 0.000_21}
LOOP = {"rank": "chief 0", "length_ns": 2_900_000_000, "spans": 4_500, "ns": 9_440_000, "share": 0.003_26}
WALL = "about 0.0105 s (0.02 %) of the wall time"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"loop": LOOP}, f"18,412 spans x 2.1 us; {WALL}, 0.0094 s (0.33 %) of the 2.900 s loop of chief 0"),
        ({"lost_lines": 1_200}, f"18,412 spans x 2.1 us, 1,200 lines lost; {WALL}"),
        ({"flush_cpu_ns": 31_400_000}, f"{WALL}, 0.0314 s of CPU for writing in all processes"),
        ({"recording": "off", "span_cost_ns": None}, "recording: off"),
    ],
)
def test_what_recording_cost_is_one_line(changes: dict[str, Any], line: str) -> None:
    text = render(breakdown, deepcopy(RECORD) | {"overhead": OVERHEAD | {"loop": None} | changes})
    assert line in " ".join(text.split())
    assert "recording:" not in render(breakdown, deepcopy(RECORD) | {"overhead": None})


def test_headline_checks_and_noise_are_in_the_breakdown() -> None:
    flat = " ".join(render(breakdown, RECORD).split())
    assert f"{first_screen(Run.from_json(RECORD)).headline} Evidence: " in flat
    assert f"The run failed. {FAILED['reason']}" in " ".join(render(breakdown, FAILED).split())
    assert "check" not in render(breakdown, FAILED | {"checks": []})
    assert "machine" not in render(breakdown, RECORD).partition("Where the wall time")[0]
    elsewhere = RECORD["noise"] | {"machine": machine_noise.CLIENT}
    text = " ".join(render(breakdown, RECORD | {"noise": elsewhere}).split())
    assert "(the client machine; the cluster's nodes were not measured)" in text


def test_what_was_not_measured_is_said() -> None:
    bare = RECORD | {"resources": None, "spark_metrics": None, "core_waits": None}
    assert render(resources, bare) == (
        "\nResource use: not measured.\n\nSpark's task metrics: none, because Spark logged no finished task.\n"
    )
    assert "resources:" not in render(breakdown, bare)
    part = deepcopy(RECORD["resources"])
    part["hosts"][0]["sampled_ns"] -= part["layers"][-1]["ns"]
    part["layers"][-1] |= {"sampled_ns": 0, "cpu_busy_share": None}
    printed = render(resources, RECORD | {"resources": part})
    assert f"not sampled: {part['layers'][-1]['ns'] / 1e9:.3f} s of the window." in printed
    assert next(line for line in printed.splitlines() if line.startswith("TensorFlow")).split()[2:] == ["-"] * 6


def test_gpus_are_a_column_and_a_line() -> None:
    found = deepcopy(RECORD["resources"])
    gpu = {"index": 0, "name": "GPU of a test", "memory_bytes": 80_000_000_000}
    found["gpus"] = [gpu | {"busy_share": 0.25, "memory_used_peak_bytes": 1_000_000_000}]
    found["gpus"] += [gpu | {"index": 1, "busy_share": None, "memory_used_peak_bytes": None}]
    found["layers"][-1]["gpu_busy_share"] = 0.5
    printed = render(resources, RECORD | {"resources": found})
    assert "GPU 0, GPU of a test: 25.0 % busy, at most 1.0 of 80.0 GB in use" in printed
    assert "GPU 1, GPU of a test: unknown % busy, at most unknown of 80.0 GB in use" in printed
    assert next(line for line in printed.splitlines() if line.startswith("TensorFlow")).split()[3] == "50.0"
    assert max(map(cell_len, printed.splitlines())) <= 80
    assert "GPU" not in render(resources, RECORD)


S = 10**9


def run_of(capture: str) -> Run:
    return Run.from_json(Captured.bundle(capture).read().to_json() | Captured.computed(capture))


def loud(name: str, saves_s: float = 9.0, evidence: int = 3) -> Finding:
    words = " ".join(["several words of a remedy"] * 8)
    says, saves_ns = f"{name.capitalize()} took long.", round(saves_s * S)
    return Finding(name, "yarn", says, 9 * S, saves_ns, S, True, ("e",) * evidence, words, words)


def shown(run: Run, bundle: str = "", width: int = 80) -> list[str]:
    printed = io.StringIO()
    overview(run, Console(file=printed, width=width), bundle)
    return printed.getvalue().splitlines()


def flat(run: Run) -> str:
    return " ".join(" ".join(shown(run)).split())


def test_a_script_without_spark_has_its_message_only() -> None:
    run = replace(
        run_of("own-run"), status="invalid", reason="No Spark", failure=Failure(next_step="start", no_spark=True)
    )
    rows = shown(run)
    assert rows[-2:] == ["No Spark", "Next: start"]
    assert not any(words in " ".join(rows) for words in ("█", "warning", "application", "wall time"))


@pytest.mark.parametrize("capture", NAMES)
@pytest.mark.parametrize("width", [60, 80, 100])
def test_every_run_fits_one_screen(capture: str, width: int) -> None:
    run = run_of(capture)
    rows = shown(run, width=width)
    assert len(rows) <= 34 or width < 80
    assert max(len(row) for row in rows if "http" not in row) == width - 1
    screen = first_screen(run)
    for part in (*screen.layers, *screen.phases):
        assert f"{part.title} {part.seconds} s" in flat(run)


def test_warnings_are_shown_in_full() -> None:
    run = run_of("quick-run")
    warnings = tuple(f"warning {number} {'with many words ' * 20}end" for number in range(30))
    assert all(f"warning: {words}" in flat(replace(run, warnings=warnings)) for words in warnings)


def test_failed_checks_are_warnings_and_undecided_ones_are_not() -> None:
    run = run_of("quick-run")
    done, failed, impossible = run.checks[:3]
    checks = (
        done,
        replace(impossible, verdict="unknown", message="the audit log is missing"),
        replace(failed, verdict="fail", message="Spark read 9 bytes of input; the files have 10"),
    )
    found = flat(replace(run, checks=checks))
    assert "warning: check failed: Spark read 9 bytes of input; the files have 10" in found
    assert "the audit log is missing" not in found


def test_findings_above_noise_are_shown_and_counted() -> None:
    run = replace(run_of("quick-run"), findings=tuple(loud(f"cause-{number}") for number in range(5)))
    found = flat(run)
    assert f"{MOST_FINDINGS}. Cause-2 took long. Saves 1.0 to 9.0 s. Remedy: several" in found
    assert "2 more: see the view `findings`" in found
    text = io.StringIO()
    overview(run, Console(file=text, width=80), "/a/b")
    assert "2 more: dlobd show /a/b --view findings\n" in text.getvalue()
    assert "No findings: the run is failed." in render(findings, replace(run, status="failed").to_json())
    assert "possible saving 1.0 to 9.0 s largest of 5 findings; savings overlap" in found


def test_findings_below_noise_are_one_grey_line() -> None:
    run = replace(run_of("quick-run"), noise=None)
    below = replace(loud("cause"), above_noise=False)
    assert run.wall_ns
    none = (
        f"No setting is expected to save more than run-to-run noise: {run.wall_ns / 1e10:.1f} s, assumed as 10 % of "
        "the wall time: too few earlier runs on this machine."
    )
    for found in ((below,), ()):
        assert none in flat(replace(run, findings=found))
        assert "Cause took long" not in flat(replace(run, findings=found))


def test_a_run_without_a_window_has_its_reason() -> None:
    none = {"wall_ns": None, "layers": (), "unattributed_ns": None, "window": None, "findings": (), "phases": ()}
    failed = replace(run_of("quick-run"), status="failed", reason="no cluster", **none)  # type: ignore[arg-type]
    assert "The run failed." in flat(failed)
    assert "no cluster" in flat(failed)
    assert sentences.FINDINGS_TITLE not in flat(failed)
    assert first_screen(replace(failed, status="ok")).headline == "Nothing was measured."


BROKEN = Failure(
    phase="Spark jobs",
    file="jobs/raises.py",
    line=7,
    traceback=('  File "jobs/raises.py", line 7, in bad', "ValueError: bad row 2"),
    java_cause="java.io.IOException: disk full",
    log="logs/driver.stderr",
)


def test_a_failed_run_has_its_facts_and_no_advice_on_overhead() -> None:
    run = replace(run_of("own-run"), status="failed", reason="ValueError: bad row 2", failure=BROKEN)
    assert first_screen(run).headline == "The run failed after 33.2 s."
    found = shown(run, "runs/a b")
    assert found[found.index("ValueError: bad row 2") :][:7] == [
        "ValueError: bad row 2",
        "Phase: Spark jobs",
        "Script: jobs/raises.py:7",
        "Java cause: java.io.IOException: disk full",
        *BROKEN.traceback,
        "Next: read runs/a b/logs/driver.stderr",
    ]
    for phrase in (sentences.FINDINGS_TITLE, "possible saving", "No setting is expected"):
        assert phrase not in flat(run)
    alone = replace(run, failure=replace(BROKEN, next_step="run it again"))
    assert "Next: run it again" in shown(alone)


def test_the_subtitle_has_model_application_and_tracking_url() -> None:
    subtitle = dict(first_screen(run_of("quick-run")).subtitle)
    assert subtitle["model"] == "softmax-regression on mnist"
    assert subtitle["workers"] == "2"
    assert subtitle["application"] == "application_1795717270784_0021"
    assert subtitle["tracking URL"].startswith("http://localhost:17916/proxy/application_")
    assert dict(first_screen(run_of("own-run")).subtitle)["script"] == "tests/foreign/word_count.py"


@pytest.mark.parametrize("capture", NAMES)
def test_the_phases_sum_to_the_wall_time(capture: str) -> None:
    run = run_of(capture)
    assert sum(row.ns for row in run.phases) == run.wall_ns
    middle = "Spark jobs" if capture == "own-run" else "training"
    assert [row.phase for row in run.phases] == ["start-up", middle, "teardown"]
    if run.metrics.training_ns:
        assert run.training_ns == run.metrics.training_ns


@pytest.mark.parametrize("capture", NAMES)
def test_every_label_of_the_first_screen_is_in_the_registry_of_words(capture: str) -> None:
    screen = first_screen(run_of(capture))
    known = WORDS | layer_words()
    labels = {tile.word for tile in screen.tiles} | {name for name, _ in screen.subtitle}
    labels |= {part.title for part in (*screen.layers, *screen.phases)}
    assert labels | {"experiment", "status"} <= known.keys()
    assert list(WORDS) == sorted(WORDS, key=str.lower)
    printed = " ".join(render(words, RECORD).split())
    assert all(f"{word}: {' '.join(meaning.split())}." in printed for word, meaning in known.items())


def test_the_transport_of_gradients_is_in_the_details() -> None:
    soft = Plane("exchange", "verbs", "rxe0:1", "", (), True, (), "rdma", True)
    screen = first_screen(replace(run_of("quick-run"), transport=(soft,)))
    assert any("Soft-RoCE in software: its speed is not that of RDMA hardware" in line for line in screen.warnings)
    disclosures = screen.disclosures
    details = [line for lines in disclosures.values() for line in lines]
    assert any(line.startswith("Gradient exchange: verbs over rxe0:1, Soft-RoCE in software") for line in details)


def test_it_is_readable_without_colours_and_blocks(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("w", encoding="ascii") as out:
        overview(run_of("quick-run"), Console(file=out, width=80))
    assert "####" in path.read_text()


def test_the_view_of_findings_has_evidence_remedy_and_page() -> None:
    run = replace(
        run_of("quick-run"), findings=(loud("cause"), replace(loud("small", 0.5), above_noise=False, lo_ns=S // 2))
    )
    console = Console(width=80, record=True)
    with console.capture() as captured:
        findings(run, console)
    shown = " ".join(captured.get().split())
    for phrase in ("1. Cause took long.", "Saves 1.0 to 9.0 s.", "Remedy:", "Unless:", "Code: cause"):
        assert phrase in shown
    assert "YARN: Small took long. Saves up to 0.5 s. Remedy:" in shown


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("above_noise", [True, False])
def test_names_that_users_copy_are_never_broken(width: int, above_noise: bool) -> None:
    name = "yarn.nodemanager.linux-container-executor.cgroups.strict-resource-usage=true"
    row = replace(loud("cause"), above_noise=above_noise, remedy=f"isolate containers' CPU with cgroups ({name})")
    printed = io.StringIO()
    findings(replace(run_of("quick-run"), findings=(row,)), Console(file=printed, width=width))
    assert any(f"({name})" in line for line in printed.getvalue().splitlines())


def of_several(*runs: Run) -> str:
    out = io.StringIO()
    several(runs, Console(file=out, width=80))
    return out.getvalue()


def test_several_runs_have_bars_differences_and_a_verdict_in_this_order() -> None:
    first, second = run_of("quick-run"), run_of("native-run")
    found = of_several(first, second)
    places = [found.index(words) for words in ("A: The run took", "B: The run took", "Differences", "no statistical")]
    assert places == sorted(places)
    assert "Spark      27.2  0.0    -27.2" in found
    bars = [line for line in found.splitlines() if line.startswith("██")]
    assert [len(line) for line in bars] == [79, round(79 * 7.648249429 / 36.365536471)]


def test_a_run_that_is_given_twice_is_reported_and_shown_once() -> None:
    run = run_of("quick-run")
    found = of_several(run, run)
    assert found.startswith(f"Run {run.run_id} was given more than once; it is shown once.")
    assert found.count("The run took") == 1
    assert "Differences" not in found


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=8))
def test_rounded_parts_sum_to_the_rounded_wall(parts_ns: list[int]) -> None:
    parts = tenths(sum(parts_ns), parts_ns)
    assert sum(parts) == (sum(parts_ns) + TENTH_NS // 2) // TENTH_NS
    assert all(abs(part * TENTH_NS - ns) < TENTH_NS for part, ns in zip(parts, parts_ns, strict=True))


if __name__ == "__main__":
    for name, view in VIEWS.items():
        (GOLDEN / name).write_text(render(*view))
