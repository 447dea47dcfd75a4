"""Evidence of another host, whose monotonic clock began elsewhere."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from dlobd.attribution import attribute
from dlobd.importers.assemble import assemble
from dlobd.importers.evidence import Evidence

QUICK_RUN = Path(__file__).parents[1] / "data" / "quick-run"
HOUR_NS = 3_600_000_000_000
MS_NS = 1_000_000


def reboot(bundle: Path, container: str, by_ns: int) -> None:
    """Rewrites what a container left, as if its host's monotonic clock were ahead by `by_ns`."""

    def later(match: re.Match[str]) -> str:
        return match[1] + str(int(match[2]) + by_ns) + match[3]

    for path in (bundle / "spans" / container).glob("*"):
        text = re.sub(r'("(?:start_ns|opened_ns|monotonic_ns|t)":)(\d+)()', later, path.read_text())
        path.write_text(re.sub(r'("domain":")[^"]+', r"\1other/boot/time", text))
    logs = bundle / "logs" / "containers" / container
    (logs / "stderr").write_text(re.sub(r"(?m)^()(\d{6,})( \d{4}-)", later, (logs / "stderr").read_text()))
    (logs / "jvm.log").write_text(re.sub(r"(?m)^(\[)(\d+)(ns\])", later, (logs / "jvm.log").read_text()))


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A copy of the captured good run."""
    return Path(shutil.copytree(QUICK_RUN, tmp_path / "run"))


def test_another_hosts_clock_changes_no_layer(bundle: Path) -> None:
    """Spans, logs and JVM records of a container whose clock is hours away give the same breakdown, to milliseconds."""
    before = {layer.layer: layer.ns for layer in attribute(assemble(bundle)).layers}
    containers = sorted(path.name for path in (bundle / "spans").glob("container_*"))
    assert len(containers) == 2
    for number, container in enumerate(containers, 1):
        reboot(bundle, container, number * HOUR_NS)
    found = attribute(assemble(bundle))
    after = {layer.layer: layer.ns for layer in found.layers}
    assert sum(after.values()) + found.unattributed_ns == found.wall_ns
    assert after.keys() == before.keys()
    assert {name: ns for name, ns in after.items() if abs(ns - before[name]) > 20 * MS_NS} == {}
    evidence = Evidence(bundle)
    assert [process.process.host for process in evidence.processes if not process.anchors] == []
    assert len(evidence.alignment.moved) > 0


def test_one_host_is_left_as_it_is() -> None:
    """All of the captured run is of one clock: nothing is moved, not even by the anchors' error."""
    evidence = Evidence(QUICK_RUN)
    assemble(QUICK_RUN)
    recorded = json.loads(next((QUICK_RUN / "spans" / "driver").iterdir()).read_text().splitlines()[0])
    assert evidence.driver_process is not None
    assert evidence.driver_process.opened_ns == recorded["opened_ns"]
    assert evidence.alignment.moved == set()
