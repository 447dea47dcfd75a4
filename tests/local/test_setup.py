"""The set-up that `make` does, on machines that lack something. Nothing here reaches a network."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[2]
CLOSED = "http://127.0.0.1:9/simple"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an empty virtual environment."""
    venv = tmp_path_factory.mktemp("venv") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=60)
    return venv / "bin" / "python"


@pytest.fixture
def offline(tmp_path: Path) -> Path:
    """A directory with one package, `tiny` 1.0, as a wheel."""
    wheel = tmp_path / "links" / "tiny-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny.py", "answer = 42\n")
        file.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("tiny-1.0.dist-info/RECORD", "")
    return wheel


def _install(python: Path, lock: Path, **settings: str) -> tuple[int, list[str]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")} | settings
    done = subprocess.run(
        [python, CHECKOUT / "requirements" / "install.py", lock],
        env=environment | {"PIP_RETRIES": "1", "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


def _lock(tmp_path: Path, digest: str) -> Path:
    lock = tmp_path / "some.lock"
    lock.write_text(f"tiny==1.0 \\\n    --hash=sha256:{digest}\n")
    return lock


def test_a_locked_package_is_installed(python: Path, tmp_path: Path, offline: Path) -> None:
    """A package whose checksum is right is installed, and the last line says what and how long."""
    lock = _lock(tmp_path, hashlib.sha256(offline.read_bytes()).hexdigest())
    code, lines = _install(python, lock, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(offline.parent))
    assert code == 0, lines
    assert lines[-1].startswith(f"installed {lock} in ")
    assert any("Installing collected packages: tiny" in line for line in lines)
    done = subprocess.run([python, "-c", "import tiny; print(tiny.answer)"], capture_output=True, text=True, timeout=30)
    assert done.stdout == "42\n"
    subprocess.run([python, "-m", "pip", "uninstall", "-qy", "tiny"], check=True, timeout=30)


def test_a_wrong_checksum_is_one_line(python: Path, tmp_path: Path, offline: Path) -> None:
    """A file that differs from the lock is not installed, and the line says that its checksum is wrong."""
    code, lines = _install(
        python, _lock(tmp_path, "0" * 64), PIP_NO_INDEX="1", PIP_FIND_LINKS=str(offline.parent), PIP_NO_CACHE_DIR="1"
    )
    assert code == 3
    assert "was not installed: a downloaded file has a wrong checksum. Next: run it again" in lines[-1]
    assert subprocess.run([python, "-c", "import tiny"], capture_output=True, timeout=30).returncode != 0


def test_no_network_is_one_line(python: Path, tmp_path: Path) -> None:
    """Without a package index the last line says so, and where the log is; there is no traceback."""
    code, lines = _install(python, _lock(tmp_path, "0" * 64), PIP_INDEX_URL=CLOSED)
    assert code == 3
    assert "the package index cannot be reached. Next: check the network or PIP_INDEX_URL" in lines[-1]
    assert (python.parents[1] / "setup.log").is_file()
    assert not any("Traceback" in line for line in lines)


def _make(tmp_path: Path, version: str | None) -> subprocess.CompletedProcess[str]:
    """`make run` where PATH holds what make's recipes need, and a python3 of `version`."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(CHECKOUT / name, tmp_path)
    shutil.copytree(CHECKOUT / "requirements", tmp_path / "requirements")
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "touch", "rm"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    if version:
        python = tools / "python3"
        # answers --version, and fails what only a newer one could do
        python.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "Python {version}" && exit 0\nexit 1\n')
        python.chmod(0o755)
    return subprocess.run(
        [str(shutil.which("make")), "run"],
        cwd=tmp_path,
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=30,
    )


@pytest.mark.parametrize(("version", "found"), [("3.9.18", "Python 3.9.18"), (None, "no python3")])
def test_a_wrong_python_is_one_line(tmp_path: Path, version: str | None, found: str) -> None:
    """`make run` names what is needed and what was found, and leaves nothing behind."""
    done = _make(tmp_path, version)
    ours = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert done.returncode == 2  # make's own code for a failed recipe
    (line,) = ours
    assert line.startswith(f"dlobd: Python 3.11, 3.12 or 3.13 with venv and pip is needed; found: {found}. Next: ")
    assert not (tmp_path / ".venv").exists()
