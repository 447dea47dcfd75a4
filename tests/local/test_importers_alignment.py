"""Evidence of another host, whose monotonic clock began elsewhere."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dlobd import spans as kinds
from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import Attribution, Span, Spans
from dlobd.bundle.store import Bundle
from dlobd.evidence.alignment import Alignment
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.timestamp import error_of
from dlobd.experiment import files
from dlobd.recompute import computed as record
from dlobd.run import run_record as run_records
from dlobd.schema import ClockAnchor, Process
from dlobd.timeline.assemble import assemble, reversed_waits
from tests.captured import note_sizes

QUICK_RUN = Path(__file__).parents[1] / "data" / "quick-run"
HOUR_NS = 3_600_000_000_000
MS_NS = 1_000_000
SECOND_NS = 1_000_000_000
OTHER = "other/boot/time"

Clock = Callable[[int], int]
"""What another host's clock shows at a time of ours."""


def reboot(bundle: Path, container: str, shown: Clock, domain: str = OTHER) -> None:
    """Rewrites what a container left, as if its host had another monotonic clock."""

    def other(match: re.Match[str]) -> str:
        return match[1] + str(shown(int(match[2]))) + match[3]

    def length(match: re.Match[str]) -> str:
        start_ns, length_ns = int(match[1]), int(match[2])
        return f'"t":{start_ns},"d":{shown(start_ns + length_ns) - shown(start_ns)}'

    for path in (bundle / "spans" / container).glob("*"):
        text = re.sub(r'"t":(\d+),"d":(\d+)', length, path.read_text())
        text = re.sub(r'("(?:start_ns|opened_ns|monotonic_ns|t)":)(\d+)()', other, text)
        path.write_text(re.sub(r'("domain":")[^"]+', rf"\g<1>{domain}", text))
    logs = bundle / "logs" / "containers" / container
    (logs / "stderr").write_text(re.sub(r"(?m)^()(\d{6,})( \d{4}-)", other, (logs / "stderr").read_text()))
    (logs / "jvm.log").write_text(re.sub(r"(?m)^(\[)(\d+)(ns\])", other, (logs / "jvm.log").read_text()))
    note_sizes(bundle)


def ahead(by_ns: int) -> Clock:
    """A clock that began earlier than ours, and is as fast."""
    return lambda at_ns: at_ns + by_ns


def exchange(bundle: Path, container: str, shown: Clock, told: Clock | None = None, seed: int = 1) -> None:
    """Appends to a container's first span file what its host would have exchanged with the driver's clock: bursts of
    messages whose ways there and back take unequal times of up to a millisecond.

    Args:
        told: what the other clock would show if it told the truth; `shown` where it does.
    """
    window, noise = window_of(bundle), random.Random(seed)
    path = min((bundle / "spans" / container).glob("*"))
    with path.open("a") as file:
        for begin_ns in range(window["exec_ns"], window["exit_ns"] + SECOND_NS, 5 * SECOND_NS):
            for burst in range(8):
                sent_ns = begin_ns + burst * MS_NS
                arrives_ns = sent_ns + noise.randint(30_000, 60_000) + int(noise.expovariate(1 / 100_000))
                answers_ns = arrives_ns + 5_000
                back_ns = answers_ns + noise.randint(300_000, 400_000) + int(noise.expovariate(1 / 100_000))
                clock = told or shown
                line = {
                    "k": "x",
                    "domain_b": window["anchors"][0]["domain"],
                    "sent_a_ns": clock(sent_ns),
                    "received_b_ns": arrives_ns,
                    "sent_b_ns": answers_ns,
                    "received_a_ns": clock(back_ns),
                }
                file.write(json.dumps(line) + "\n")
    note_sizes(bundle)


def window_of(bundle: Path) -> dict[str, Any]:
    return json.loads((bundle / "evidence" / "window.json").read_text())  # type: ignore[no-any-return]


def containers_of(bundle: Path) -> list[str]:
    found = sorted(path.name for path in (bundle / "spans").glob("container_*"))
    assert len(found) == 2
    return found


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return Path(shutil.copytree(QUICK_RUN, tmp_path / "run"))


def layers_of(found: Attribution) -> dict[str, int]:
    layers = {layer.layer: layer.ns for layer in found.layers}
    assert sum(layers.values()) + found.unattributed_ns == found.wall_ns
    return layers


def warnings_of(bundle: Path) -> list[str]:
    wanted = files.load("softmax-mnist-quick")
    (bundle / "evidence" / "collected.json").write_text('{"missing": [], "metrics": {}}')
    found = run_records.begin(Bundle(bundle), wanted).to_json()
    found |= record.computed(Bundle(bundle), wanted).to_json()
    return found["warnings"]  # type: ignore[no-any-return]


def test_another_hosts_clock_changes_no_layer(bundle: Path) -> None:
    before = layers_of(attribute(assemble(Evidence(bundle))))
    for number, container in enumerate(containers_of(bundle), 1):
        reboot(bundle, container, ahead(number * HOUR_NS), f"host-{number}/boot/time")
    after = layers_of(attribute(assemble(Evidence(bundle))))
    assert after.keys() == before.keys()
    assert {name: ns for name, ns in after.items() if abs(ns - before[name]) > 20 * MS_NS} == {}
    evidence = Evidence(bundle)
    assert [process.process.host for process in evidence.processes if not process.anchors] == []
    assert len(evidence.alignment.moved) > 0
    assert [line for line in warnings_of(bundle) if "sources with other clocks were aligned by wall clocks" in line]


def test_one_host_is_left_as_it_is() -> None:
    evidence = Evidence(QUICK_RUN)
    trace = assemble(Evidence(QUICK_RUN))
    recorded = json.loads(next((QUICK_RUN / "spans" / "driver").iterdir()).read_text().splitlines()[0])
    assert evidence.driver_process.opened_ns == recorded["opened_ns"]
    assert (evidence.alignment.moved, evidence.alignment.clocks) == (set(), {})
    assert trace.clips == ()


@pytest.mark.parametrize("ppm", [0, 90, -90])
def test_messages_place_another_host_within_what_is_said(bundle: Path, ppm: int) -> None:
    """Two hosts whose clocks began elsewhere and run faster or slower, messages that take unequal times: every moved
    time is off by less than its error, each layer's time on one clock lies between its lowest and highest value, and
    these lie further apart than before. No wall clock is used, though there is one that is off by minutes."""
    before = assemble(Evidence(bundle))
    single = attribute(before)
    start_ns = window_of(bundle)["exec_ns"]
    for number, container in enumerate(containers_of(bundle), 1):

        def shown(at_ns: int, shift_ns: int = number * HOUR_NS) -> int:
            return at_ns + shift_ns + (at_ns - start_ns) * ppm // 1_000_000

        reboot(bundle, container, shown, f"host-{number}/boot/time")
        exchange(bundle, container, shown, seed=number)
        set_wall_clock(bundle, container)
    after = assemble(Evidence(bundle))
    found = attribute(after)
    evidence = Evidence(bundle)
    assert {process.domain for process in evidence.processes} == {
        window_of(bundle)["anchors"][0]["domain"],
        "host-1/boot/time",
        "host-2/boot/time",
    }
    assert len(before.spans) == len(after.spans)
    moved = 0
    for was, now in zip(before.spans, after.spans, strict=True):
        # the start of Log4j has only a wall time, and a resolution of 1 ms
        error_ns = now.resolution_ns - (was.resolution_ns if was.resolution_ns < MS_NS else 0)
        assert abs(now.start_ns - was.start_ns) <= error_ns, (was, now)
        assert abs(now.end_ns - was.end_ns) <= error_ns + 1, (was, now)  # none is empty
        moved += error_ns > 0
    assert moved > len(before.spans) / 2
    assert max(now.resolution_ns for now in after.spans if now.name == "step") < MS_NS
    for was_event, now_event in zip(before.startup, after.startup, strict=True):
        assert abs(now_event.at_ns - was_event.at_ns) <= now_event.resolution_ns - was_event.resolution_ns
    rows = {layer.layer: layer for layer in found.layers}
    for layer in single.layers:
        assert rows[layer.layer].lo_ns <= layer.ns <= rows[layer.layer].hi_ns
    assert layers_of(found).keys() == rows.keys()
    for name in ("spark", "tensorflow", "feed", "launcher"):
        (was_row,) = [layer for layer in single.layers if layer.layer == name]
        assert rows[name].hi_ns - rows[name].lo_ns > was_row.hi_ns - was_row.lo_ns
    assert after.clips == ()
    said = [line for line in warnings_of(bundle) if "message pairs" in line]
    assert [line.partition(" has a different clock")[0] for line in said] == ["host-1", "host-2"]
    assert not [line for line in warnings_of(bundle) if "wall clock" in line]


def set_wall_clock(bundle: Path, container: str) -> None:
    """Rewrite the wall times of a container, as if its clock was five minutes fast."""

    def late(match: re.Match[str]) -> str:
        return match[1] + str(int(match[2]) + 300 * SECOND_NS)

    def later(match: re.Match[str]) -> str:
        return match[1] + (datetime.fromisoformat(match[2]) + timedelta(minutes=5)).isoformat(timespec="minutes")

    for path in (bundle / "spans" / container).glob("*"):
        path.write_text(re.sub(r'("wall_ns":)(\d{15,})', late, path.read_text()))
    stderr = bundle / "logs" / "containers" / container / "stderr"
    date = r"(?m)^((?:\d{6,} )?)(\d{4}-\d\d-\d\dT\d\d:\d\d)"
    stderr.write_text(re.sub(date, later, stderr.read_text()))


def test_messages_that_contradict_the_logs_are_reported(bundle: Path) -> None:
    containers = containers_of(bundle)
    found = []
    for late_ms in (50, -50):
        again = Path(shutil.copytree(bundle, bundle.parent / f"late{late_ms}"))
        reboot(again, containers[0], ahead(HOUR_NS))
        exchange(again, containers[0], ahead(HOUR_NS), told=ahead(HOUR_NS + late_ms * MS_NS))
        clips = assemble(Evidence(again)).clips
        assert {clip.kind for clip in clips} == {"inconsistent"}
        assert all(0 < clip.ns <= 50 * MS_NS for clip in clips)
        assert set(clips) <= set(attribute(assemble(Evidence(again))).clips)
        found.append({re.sub(r"\d+", "n", clip.span) for clip in clips})
    assert "executor-n: task n" in found[0]
    assert "executor-n: result of task n" in found[1]


def test_a_clock_that_is_stepped_is_a_warning(bundle: Path) -> None:
    window, (container, _) = window_of(bundle), containers_of(bundle)
    before = starts(Evidence(bundle), container)
    middle_ns = sorted(before.values())[len(before) // 2]

    def shown(at_ns: int) -> int:
        return at_ns + HOUR_NS + (2 * SECOND_NS if at_ns > middle_ns else 0)

    reboot(bundle, container, shown)
    exchange(bundle, container, shown)
    (warning,) = [line for line in warnings_of(bundle) if "stepped" in line and "monotonic clock of other" in line]
    first_s, last_s = map(float, re.findall(r"\d+\.\d+", warning))
    assert first_s <= (middle_ns - window["exec_ns"]) / 1e9 <= last_s
    assert last_s - first_s < 6
    evidence = Evidence(bundle)
    after = starts(evidence, container)
    kept = 0
    for span, was_ns in before.items():
        error_ns = error_of(after[span])
        assert abs(was_ns - after[span]) <= error_ns
        if not first_s * 1e9 < was_ns - window["exec_ns"] < last_s * 1e9:
            kept += 1
            assert error_ns < 2 * MS_NS
    assert len(before) > kept > 5


def starts(evidence: Evidence, container: str) -> dict[tuple[str, int], int]:
    """When each span that a container recorded began."""
    processes = evidence.recorded_in(container)
    return {(process.path.name, span.id): span.start_ns for process in processes for span in process.spans}


def test_a_log_that_begins_after_the_wall_clock_was_set_stays(bundle: Path) -> None:
    (container, _) = containers_of(bundle)
    before = assemble(Evidence(bundle))
    set_wall_clock(bundle, container)
    assert [*assemble(Evidence(bundle)).spans] == [*before.spans]
    assert Evidence(bundle).alignment.moved == set()


def test_a_log_is_of_the_clock_that_is_nearest(tmp_path: Path) -> None:
    """By how far its wall time is ahead of its monotonic time; far from all, it is moved by wall clocks."""
    here = ClockAnchor("here/boot/time", 10 * SECOND_NS, 1_700_000_000 * SECOND_NS, 1)
    for name, monotonic_s in (("same", 10), ("elsewhere", 5)):
        (tmp_path / name).write_text(f"{monotonic_s * SECOND_NS} 2023-11-14T22:13:20.000 INFO a.B: said\n")
    alignment = Alignment([here], logs={tmp_path / name: tmp_path / "jvm.log" for name in ("same", "elsewhere")})
    for name in ("same", "elsewhere"):
        (line,) = alignment.log(tmp_path / name, name)
        assert line.at_ns == 10 * SECOND_NS
    assert alignment.moved == {str(tmp_path / "elsewhere")}
    assert Alignment([]).log(tmp_path / "elsewhere", "x")[0].at_ns == 5 * SECOND_NS


def wait(released_ns: int, resolution_ns: int = 1, truncated: bool = False) -> Span:
    """A wait from 100 to 200."""
    return Span(
        "w",
        None,
        kinds.WAIT_FOR_EXECUTORS,
        Process("h", "driver", 0, 1),
        "driver",
        100,
        200,
        waits_for=("rank-0",),
        released_ns=released_ns,
        resolution_ns=resolution_ns,
        truncated=truncated,
    )


def test_a_wait_that_ended_before_its_release_is_inconsistent() -> None:
    (clip,) = reversed_waits(Spans.of([wait(250)]))
    assert (clip.kind, clip.span, clip.ns) == ("inconsistent", "w", 50)
    right = [wait(150), wait(200), wait(250, 25), wait(250, truncated=True)]
    assert [*reversed_waits(Spans.of(right))] == []
