"""The set-up that `make` does, on machines that lack something. Nothing here reaches a network."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[2]
CLOSED = "http://127.0.0.1:9/simple"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    venv = tmp_path_factory.mktemp("venv") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=110)
    return venv / "bin" / "python"


@pytest.fixture(params=["pip", "uv"])
def installer(request: pytest.FixtureRequest, python: Path) -> Iterator[str]:
    """What installs: pip alone, or this environment's uv."""
    uv = python.with_name("uv")
    if request.param == "uv":
        ours = Path(sys.prefix) / "bin" / "uv"
        if not ours.exists():
            pytest.skip("this environment was installed without uv")
        uv.symlink_to(ours)
    yield request.param
    uv.unlink(missing_ok=True)


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


def _command(python: Path, *locks: Path) -> list[str | Path]:
    return [python, CHECKOUT / "requirements" / "install.py", *locks]


def _settings(cache: Path, **settings: str) -> dict[str, str]:
    """The environment without what this machine tells pip and uv."""
    theirs = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    return theirs | {"PIP_RETRIES": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_CACHE_DIR": str(cache)} | settings


def _install(python: Path, *locks: Path, **settings: str) -> tuple[int, list[str]]:
    environment = _settings(locks[0].parent / "cache", **settings)
    done = subprocess.run(_command(python, *locks), env=environment, capture_output=True, text=True, timeout=110)
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


def _lock(tmp_path: Path, digest: str) -> Path:
    lock = tmp_path / "some.lock"
    lock.write_text(f"tiny==1.0 \\\n    --hash=sha256:{digest}\n")
    return lock


def _right(tmp_path: Path, offline: Path) -> Path:
    return _lock(tmp_path, hashlib.sha256(offline.read_bytes()).hexdigest())


def _offline(offline: Path) -> dict[str, str]:
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(offline.parent)}


def _uninstall(python: Path) -> None:
    done = subprocess.run([python, "-c", "import tiny; print(tiny.answer)"], capture_output=True, text=True, timeout=30)
    assert done.stdout == "42\n"
    subprocess.run([python, "-m", "pip", "uninstall", "-qy", "tiny"], check=True, timeout=30)


def test_a_locked_package_is_installed(installer: str, python: Path, tmp_path: Path, offline: Path) -> None:
    lock = _right(tmp_path, offline)
    code, lines = _install(python, lock, **_offline(offline))
    assert code == 0, lines
    assert lines[-1].startswith(f"installed {lock} in ")
    step = {"pip": "Installing collected packages: tiny", "uv": "Installed 1 package"}[installer]
    assert any(step in line for line in lines), lines
    assert not any("pip tries" in line for line in lines)
    _uninstall(python)


def test_a_wrong_checksum_is_one_line(installer: str, python: Path, tmp_path: Path, offline: Path) -> None:
    """A file that differs from the lock is not installed, and the line says so; no second installer has a try."""
    code, lines = _install(python, _lock(tmp_path, "0" * 64), **_offline(offline))
    assert code == 3
    assert "was not installed: a downloaded file has a wrong checksum. Next: run it again" in lines[-1]
    assert not any("pip tries" in line for line in lines), installer
    assert subprocess.run([python, "-c", "import tiny"], capture_output=True, timeout=30).returncode != 0


def test_no_network_is_one_line(installer: str, python: Path, tmp_path: Path) -> None:
    """Without a package index the last line says so, and where the log is; there is no traceback."""
    code, lines = _install(python, _lock(tmp_path, "0" * 64), PIP_INDEX_URL=CLOSED)
    assert code == 3
    assert "the package index cannot be reached. Next: check the network or PIP_INDEX_URL" in lines[-1]
    assert any("uv did not install" in line and "cannot be reached" in line for line in lines) == (installer == "uv")
    # uv was told pip's index
    assert CLOSED in (python.parents[1] / "setup.log").read_text() or installer == "pip"
    assert not any("Traceback" in line for line in lines)


def test_without_uv_pip_installs(python: Path, tmp_path: Path, offline: Path) -> None:
    (tmp_path / "uv.lock").write_text((CHECKOUT / "requirements" / "uv.lock").read_text())
    code, lines = _install(python, tmp_path / "uv.lock", _right(tmp_path, offline), **_offline(offline))
    assert code == 0, lines
    assert "uv is not available for this machine; pip installs instead, which takes longer" in lines
    _uninstall(python)


@pytest.fixture
def stand_in(python: Path) -> Iterator[Path]:
    uv = python.with_name("uv")
    yield uv
    uv.unlink()


def _script(uv: Path, install: str) -> None:
    uv.write_text(f'#!/bin/sh\n[ "$1" = --version ] || {{ {install}; }}\n')
    uv.chmod(0o755)


@pytest.mark.parametrize("install", ["echo error: it is confused.; exit 2", "kill -SEGV $$"])
def test_what_uv_fails_with_pip_tries(
    stand_in: Path, install: str, python: Path, tmp_path: Path, offline: Path
) -> None:
    _script(stand_in, install)
    code, lines = _install(python, _right(tmp_path, offline), **_offline(offline))
    assert code == 0, lines
    assert any(line.startswith("uv did not install") and line.endswith("): pip tries") for line in lines), lines
    _uninstall(python)


def test_ctrl_c_leaves_nothing(stand_in: Path, python: Path, tmp_path: Path) -> None:
    """Interrupted while uv works, it ends with 130 and without a traceback, and so does what it started."""
    _script(stand_in, "echo Resolved 1 package; exec sleep 600")
    process = subprocess.Popen(
        _command(python, _lock(tmp_path, "0" * 64)),
        env=_settings(tmp_path),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert "Resolved" in process.stderr.readline()
    process.send_signal(signal.SIGINT)  # to it alone: a terminal would tell all of them
    assert process.wait(timeout=30) == 130
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_locks_are_complete() -> None:
    """What the locks install needs nothing else: they are installed without looking at what packages ask for."""
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout


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
    done = _make(tmp_path, version)
    ours = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert done.returncode == 2  # make's own code for a failed recipe
    (line,) = ours
    assert line.startswith(f"dlobd: Python 3.11, 3.12 or 3.13 with venv and pip is needed; found: {found}. Next: ")
    assert not (tmp_path / ".venv").exists()
