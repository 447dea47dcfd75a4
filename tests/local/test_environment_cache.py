"""Cold or warm: what a run found in memory of its environment, of real files, and what is made of it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from dlobd.compare import compatibility
from dlobd.errors import UsageError
from dlobd.fields import plain
from dlobd.measures import environment_cache as attribution
from dlobd.record.resources import EnvironmentCache, EnvironmentPart
from dlobd.run import page_cache
from tests import records

MB = 1 << 20


@pytest.fixture
def java_home(tmp_path: Path) -> Path:
    (tmp_path / "lib" / "server").mkdir(parents=True)
    for name in ("modules", "server/libjvm.so"):
        (tmp_path / "lib" / name).write_bytes(os.urandom(12 * MB))
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(tmp_path)], capture_output=True, text=True, check=True)
    assert kind.stdout.strip() not in ("tmpfs", "ramfs"), "pages of a file system in memory cannot be dropped"
    return tmp_path


def looked(java_home: Path, before: str) -> EnvironmentCache:
    """The member of run.json of a job that reads all of Java, after its files were dropped or read."""
    java = {"Java": page_cache.environment_parts(java_home)["Java"]}
    page_cache.drop(java["Java"])
    if before == "half":
        page_cache.read(java["Java"][:1])
        with java["Java"][1].open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
            file.read(4 * MB)
    if before == "read":
        page_cache.read(java["Java"])
    first = page_cache.environment_residency(java)
    page_cache.read(java["Java"])
    found = attribution.environment_cache(
        page_cache.environment_evidence(first, page_cache.environment_residency(java))
    )
    assert found is not None
    return found


@pytest.mark.parametrize(("before", "state"), [("dropped", "cold"), ("half", "partly"), ("read", "warm")])
def test_what_was_dropped_before_a_run_makes_it_cold(java_home: Path, before: str, state: str) -> None:
    found = looked(java_home, before)
    assert found.state == state
    (part,) = found.parts
    assert part.after_bytes == part.total_bytes == 24 * MB
    lines = attribution.warnings(found)
    assert len(lines) == (state != "warm")
    assert all("Java" in line and "of 25 MB" in line for line in lines)


def test_the_real_environment_has_its_three_parts_and_native_runs_one(java_home: Path) -> None:
    assert [*page_cache.environment_parts(java_home)] == ["TensorFlow", "Java", "Spark"]
    (tensorflow,) = page_cache.environment_parts(None).values()
    assert any(path.name.startswith("libtensorflow_cc") for path in tensorflow)
    (seen,) = page_cache.environment_residency({"TensorFlow": tensorflow}).values()
    assert seen["total_bytes"] == sum(path.stat().st_size for path in tensorflow) > 500 * MB


def test_what_the_kernel_hides_is_unknown(java_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    (seen,) = page_cache.environment_residency({"Java": page_cache.environment_parts(java_home)["Java"]}).values()
    assert seen is None
    found = attribution.environment_cache({"Java": {"before": seen, "after": seen}})
    assert found == EnvironmentCache(None, (EnvironmentPart("Java", None, None, None, None),))
    assert attribution.environment_cache({}) is attribution.environment_cache(None) is None


def test_a_part_that_was_not_used_says_nothing() -> None:
    """A job without TensorFlow is not cold because of it."""
    little = {"resident_bytes": MB, "total_bytes": 900 * MB}
    much = {"resident_bytes": 90 * MB, "total_bytes": 100 * MB}
    found = attribution.environment_cache(
        {"TensorFlow": {"before": little, "after": little}, "Java": {"before": much, "after": much}}
    )
    assert [part.state for part in found.parts] == [None, "warm"]
    assert found.state == "warm"


def test_a_comparison_does_not_mix_cold_and_warm_unknowingly(java_home: Path) -> None:
    cold, warm = (records.run(environment_cache=plain(looked(java_home, how))) for how in ("dropped", "read"))
    warm = dataclasses.replace(warm, run_id="20260102T030405Z-0a1c")
    (difference,) = compatibility.differences([cold, warm])
    assert difference.line == "page-cache: 0 to 100 % of the needed files of the environment were in memory"
    assert compatibility.differences([warm]) == []
    with pytest.raises(UsageError, match="page-cache: 0 to 100 % of the needed files"):
        compatibility.refuse([difference], ())
    compatibility.refuse([difference], ("page-cache",))
