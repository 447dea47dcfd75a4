"""The state of a real checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dlobd.run import provenance


def git(directory: Path, *words: str) -> str:
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
    hook = "sys.addaudithook(lambda e, a: e == 'subprocess.Popen' and sys.exit(9))"
    code = f"import sys; {hook}; import dlobd.run.provenance"
    assert subprocess.run([sys.executable, "-c", code], timeout=110).returncode == 0
