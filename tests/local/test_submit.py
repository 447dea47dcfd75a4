"""The window of a submit command, and that nothing of the job outlives it. Real processes throughout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from dlobd.run.schedulers.base import Command
from dlobd.run.submitted_process import Window, submit
from dlobd.tracing import clock
from tests.waiting import until

APP = "application_1795230150220_0001"


def run(
    script: str,
    logs: Path,
    timeout_s: float = 30,
    told: Callable[[str], None] = lambda line: None,
    on_abort: Callable[[str], Any] = lambda application_id: "",
    accept_timeout_s: float = 30,
    output: Callable[[str], None] = lambda line: None,
    on_interrupt: Callable[[], None] = lambda: None,
    **environment: str,
) -> Window:
    command = Command(("sh", "-c", script), environment)
    return submit(command, logs, timeout_s, accept_timeout_s, told, on_abort, output, on_interrupt)


def gone(pid: int, within_s: float = 10) -> bool:
    """Whether a process ends in time; a zombie has ended."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_the_window_of_a_job_that_ends_well(tmp_path: Path) -> None:
    """exec <= started <= exit, all between our own readings; exit code, application id and anchors are noted."""
    before = clock.monotonic_ns()
    window = run(f"echo out; echo 'Submitted application {APP}' >&2; sleep 0.2", tmp_path / "logs")
    after = clock.monotonic_ns()
    assert before < window.exec_ns < window.started_ns < window.exit_ns < after
    assert window.exit_ns - window.exec_ns >= 200_000_000
    assert (window.exit_code, window.ended_by, window.application_id) == (0, "", APP)
    first, last = window.anchors
    assert first.monotonic_ns < window.exec_ns
    assert last.monotonic_ns > window.exit_ns
    assert (tmp_path / "logs" / "driver.stdout").read_text() == "out\n"
    assert APP in (tmp_path / "logs" / "driver.stderr").read_text()


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -9 $$", -9), ("sh -c 'kill -9 $$'; exit $?", 137)])
def test_exit_codes_and_signals_are_told_apart(tmp_path: Path, script: str, code: int) -> None:
    """Negative where spark-submit itself was killed; 128 + n is what a shell says of its child."""
    window = run(script, tmp_path)
    assert (window.exit_code, window.ended_by) == (code, "")


def test_lines_are_told_whole_and_once(tmp_path: Path) -> None:
    """Progress sees every line in order, never a half of one, and what was not ended by a line break not at all."""
    told: list[str] = []
    script = "printf 'one\\ntw' >&2; sleep 0.4; printf 'o\\nthree\\nfo' >&2; sleep 0.3; printf 'ur' >&2"
    run(script, tmp_path, told=told.append)
    assert told == ["one", "two", "three"]
    assert (tmp_path / "driver.stderr").read_text() == "one\ntwo\nthree\nfour"


def test_output_arrives_while_the_job_runs_also_its_unfinished_last_line(tmp_path: Path) -> None:
    printed: list[tuple[float, str]] = []
    run(
        "printf '  a | b\\nc'; sleep 1; printf 'd'",
        tmp_path,
        output=lambda line: printed.append((time.monotonic(), line)),
    )
    (first_s, first), (last_s, last) = printed
    assert (first, last) == ("  a | b", "cd")
    assert last_s - first_s > 0.5


def test_the_command_gets_its_environment_and_no_input(tmp_path: Path) -> None:
    run('echo "$SPARK_CONF_DIR $HOME_SEEN"; cat', tmp_path, SPARK_CONF_DIR="/conf a", HOME_SEEN="x")
    assert (tmp_path / "driver.stdout").read_text() == "/conf a x\n"


def test_a_job_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """Its application is killed first, then its whole session, also a grandchild that does not want to."""
    aborted: list[str] = []
    script = f"echo {APP} >&2; (trap '' TERM; sleep 100) & echo $!; wait"
    window = run(script, tmp_path, timeout_s=0.5, on_abort=aborted.append)
    assert (window.ended_by, window.exit_code, aborted) == ("timeout", -signal.SIGTERM, [APP])
    assert gone(int((tmp_path / "driver.stdout").read_text()))


def test_a_job_that_yarn_never_starts_is_ended(tmp_path: Path) -> None:
    """Its own deadline runs from the submission on; what the scheduler says of the application is kept."""
    script = f"echo 'Submitted application {APP}' >&2; exec sleep 100"
    window = run(script, tmp_path, accept_timeout_s=0.5, on_abort=lambda application_id: f"{application_id} waits")
    assert (window.ended_by, window.diagnostics) == ("accept timeout", f"{APP} waits")


@pytest.mark.parametrize("started", [f"Application report for {APP} (state: RUNNING)", f"{APP} has started running."])
def test_a_job_that_yarn_started_may_take_its_time(tmp_path: Path, started: str) -> None:
    script = f"echo 'Submitted application {APP}' >&2; echo '{started}' >&2; sleep 1"
    assert run(script, tmp_path, accept_timeout_s=0.7).ended_by == ""


def test_a_job_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the grace it gets SIGKILL; the window ends when it is gone. Without an application nothing is aborted."""
    monkeypatch.setattr("dlobd.run.submitted_process.GRACE_S", 0.5)
    aborted: list[str] = []
    window = run("trap '' TERM; while :; do sleep 0.1; done", tmp_path, timeout_s=0.3, on_abort=aborted.append)
    assert (window.exit_code, window.ended_by, aborted) == (-signal.SIGKILL, "timeout", [])
    assert window.exit_ns - window.exec_ns >= (0.3 + 0.5) * 1e9


def test_ctrl_c_ends_the_job_and_keeps_the_window(tmp_path: Path) -> None:
    """A SIGINT while the job runs: the job is ended, and the window says so instead of an exception, so that what the
    job left can still be collected."""

    def interrupt(line: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    called: list[str] = []
    window = run(
        f"echo $$; echo {APP} >&2; exec sleep 100",
        tmp_path,
        on_abort=called.append,
        told=interrupt,
        on_interrupt=lambda: called.append("interrupted"),
    )
    assert (window.ended_by, window.exit_code) == ("interrupt", -signal.SIGTERM)
    assert called == ["interrupted", APP], "dlobd may be killed while it ends the application"
    assert gone(int((tmp_path / "driver.stdout").read_text()))


def test_another_error_ends_the_job_too(tmp_path: Path) -> None:
    def fail(line: str) -> None:
        raise RuntimeError(line)

    with pytest.raises(RuntimeError, match="boom"):
        run("echo $$; echo boom >&2; exec sleep 100", tmp_path, told=fail)
    assert gone(int((tmp_path / "driver.stdout").read_text()))


def test_kill_9_of_the_command_ends_the_job(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from dlobd.run.schedulers.base import Command; from dlobd.run.submitted_process import submit\n"
        "submit(Command(('sh', '-c', 'echo $$; exec sleep 100'), {}), Path(sys.argv[1]), 60, 60, print, print)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) as parent:
        stdout = tmp_path / "driver.stdout"
        job = int(until(lambda: stdout.exists() and stdout.read_text().strip()))
        assert psutil.pid_exists(job)
        parent.kill()
    assert gone(job)
