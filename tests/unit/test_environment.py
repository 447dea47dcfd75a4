"""What a run says about the machine it ran on."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import dlobd
from dlobd.run import provenance


def test_the_platform_is_this_machine() -> None:
    """Real values of this machine, all of them plain JSON."""
    found = provenance.platform()
    assert json.loads(json.dumps(found)) == found
    assert (found["system"], found["architecture"]) == (platform.system(), platform.machine())
    assert found["cores"] == os.cpu_count()
    memory = found["memory_bytes"]
    assert isinstance(memory, int)
    total = int(next(line for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line).split()[1])
    assert memory == total * 1024


def test_versions_of_everything_that_takes_part() -> None:
    """Python, Java as given, Hadoop, and each package; what is not installed is null instead of left out."""
    found = provenance.versions("17.0.1")
    assert (found["dlobd"], found["java"], found["hadoop"]) == (dlobd.__version__, "17.0.1", provenance.HADOOP_VERSION)
    assert found["python"] == platform.python_version()
    assert found["tensorflowonspark"] == "2.2.5"
    assert provenance.versions(None)["java"] is None


def test_a_package_that_is_not_there_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer's machine may lack what the driver has."""
    monkeypatch.setattr(provenance, "_PACKAGES", ("no-such-package-of-anybody", "numpy"))
    found = provenance.versions(None)
    assert found["no-such-package-of-anybody"] is None
    assert found["numpy"]


def git(directory: Path, *words: str) -> str:
    """Runs git in a directory of the test's own."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(directory), *identity, "-c", "core.hooksPath=/dev/null", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_state_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit, and whether a tracked file was changed; files that git does not know do not count. Without a checkout,
    as with a wheel, there is nothing to say."""
    module = tmp_path / "dlobd" / "provenance.py"
    module.parent.mkdir()
    module.write_text("x = 1\n")
    monkeypatch.setattr(provenance, "PACKAGE", module.parent)
    assert provenance.git() is None
    git(tmp_path, "init", "-q")
    assert provenance.git() == {"commit": None, "dirty": False}
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "runs").write_text("untracked")
    assert provenance.git() == {"commit": commit, "dirty": False}
    module.write_text("x = 2\n")
    assert provenance.git() == {"commit": commit, "dirty": True}


def test_importing_it_asks_nothing() -> None:
    """Neither git nor the machine is asked before somebody wants to know."""
    hook = "sys.addaudithook(lambda e, a: e == 'subprocess.Popen' and sys.exit(9))"
    code = f"import sys; {hook}; import dlobd.run.provenance"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
