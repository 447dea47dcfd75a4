"""The guest itself: what comes back from it, and what ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.guest.machine import GuestError, Machine, TookTooLongError, run
from tests.guest.packages import QEMU

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

TOP = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-m", "tests.guest", "run"]
BOOT_LIMIT_S = 120.0


def test_output_status_and_files_are_handed_back(tmp_path: Path) -> None:
    """Byte for byte, each stream for itself; the command has this directory, Python and environment, and writes
    nowhere but to its output directory."""
    out, elsewhere = tmp_path / "a,b c", tmp_path / "elsewhere"
    out.mkdir()
    script = r"""printf '\000\377 %s' "$WORD"; pwd >&2; python -c 'import sys; print(sys.executable)' >&2
        echo made > "$1/file"; echo lost > "$2"; cat /dev/fd/3 3< "$2"; exit 37"""
    shell = ["sh", "-c", script, "sh", str(out), str(elsewhere)]
    done = subprocess.run(
        [*COMMAND, "--out", str(out), "--deadline-s", f"{BOOT_LIMIT_S}", "--", *shell],
        cwd=TOP,
        env={**os.environ, "WORD": 'it\'s "one"\n$WORD'},
        capture_output=True,
    )
    assert done.returncode == 37, done.stderr
    assert done.stdout == b'\0\xff it\'s "one"\n$WORDlost\n'
    assert done.stderr.decode().splitlines() == [str(TOP), sys.executable]
    assert (out / "file").read_text() == "made\n"
    assert not elsewhere.exists()


def test_a_command_that_succeeds_is_told_so() -> None:
    done = subprocess.run([*COMMAND, "--deadline-s", f"{BOOT_LIMIT_S}", "--", "true"], cwd=TOP, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_guest_is_ended_at_its_deadline() -> None:
    with pytest.raises(TookTooLongError, match="had not ended after 3 s, while it"):
        run(["sleep", "1000"], deadline_s=3)
    assert not emulators(os.getpid())


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_guest_ends_with_who_started_it(tmp_path: Path, number: signal.Signals, code: int) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # who is killed leaves its temporary directory
    command = [*COMMAND, "--", "sleep", "1000"]
    with subprocess.Popen(command, cwd=TOP, env=environment, stderr=subprocess.PIPE) as process:
        try:
            (emulator,) = first(emulators(process.pid) for _ in attempts())
            process.send_signal(number)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, said) == (code, b"")
    first(not emulator.is_running() or emulator.status() == psutil.STATUS_ZOMBIE for _ in attempts())


def test_a_kernel_that_panics_is_told_in_a_line() -> None:
    with pytest.raises(GuestError, match=r"the guest ended while its command ran.*Kernel panic") as caught:
        run(["sh", "-c", "echo c > /proc/sysrq-trigger"], deadline_s=BOOT_LIMIT_S)
    assert "\n" not in str(caught.value)


def test_a_machine_that_cannot_be_made_is_told_in_a_line() -> None:
    with pytest.raises(GuestError, match=r"QEMU with 1.*invalid accelerator nonsense") as caught:
        run(["true"], Machine(accelerator="nonsense"), deadline_s=BOOT_LIMIT_S)
    assert "\n" not in str(caught.value)


def emulators(pid: int) -> list[psutil.Process]:
    return [one for one in psutil.Process(pid).children(recursive=True) if one.name().startswith(QEMU[:15])]


def attempts(limit_s: float = 30.0) -> Iterator[float]:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        yield time.monotonic()
        time.sleep(0.05)


def first(found: Iterator[Any]) -> Any:
    return next(one for one in found if one)
