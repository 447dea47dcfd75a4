from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dlobd.errors import Busy, ClusterError, SetupError
from dlobd.hadoop.embedded import daemons, ports, processes, startup
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import ClusterSettings, DaemonPlan
from dlobd.hadoop.embedded.state import ClusterState, WorkDirLock, read_state, write_state
from dlobd.process_id import ProcessId, identify
from dlobd.tracing import clock

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEP) as child:
        yield child
        child.kill()


def state_of(process: ProcessId) -> ClusterState:
    """The state of a cluster that stays and has one daemon."""
    return ClusterState(
        domain=clock.domain(),
        hadoop="3.5.0",
        java_home="/java",
        java_version="17",
        java_origin="test",
        stays=True,
        ready=True,
        owner=identify(os.getpid()),
        started_wall_s=1.0,
        daemons=(DaemonPlan("namenode", "namenode", "127.0.0.1", {"rpc": 1, "http": 2}),),
        processes={"namenode": process},
    )


# ---- ports


def test_random_ports_are_free_consecutive_and_not_ephemeral() -> None:
    chosen = ports.choose_ports(["127.0.0.1", "127.0.0.2", "127.0.0.1"])
    assert chosen == list(range(chosen[0], chosen[0] + 3))
    low, high = (int(w) for w in Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not any(low <= port <= high for port in chosen)
    for port in chosen:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_a_taken_fixed_port_is_named_with_its_owner() -> None:
    """The third port of a fixed block is ours already: the line names it, this process, and the remedy."""
    base = ports.choose_ports(["127.0.0.1"] * 3)[0]
    with socket.create_server(("127.0.0.1", base + 2)), pytest.raises(SetupError) as error:
        ports.choose_ports(["127.0.0.1"] * 3, base)
    assert f"Port {base + 2} on 127.0.0.1 is taken" in error.value.line
    assert f"(pid {os.getpid()})" in error.value.line
    assert "DLOBD_PORT_BASE" in error.value.line
    assert ports.choose_ports(["127.0.0.1"] * 3, base) == [base, base + 1, base + 2]


@pytest.mark.parametrize("text", ["abc", "-1", "2.5"])
def test_a_port_base_that_is_no_number_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DLOBD_PORT_BASE is checked; unset and blank mean random ports, and an impossible number is out of range."""
    monkeypatch.setenv("DLOBD_PORT_BASE", text)
    with pytest.raises(SetupError, match="DLOBD_PORT_BASE"):
        ports.port_base()
    monkeypatch.setenv("DLOBD_PORT_BASE", " ")
    assert ports.port_base() is None
    for base in (80, 65534):
        with pytest.raises(SetupError, match="out of range"):
            ports.choose_ports(["127.0.0.1"] * 3, base)


# ---- processes


def test_a_recycled_pid_is_neither_alive_nor_killed(sleeper: subprocess.Popen[bytes]) -> None:
    real = identify(sleeper.pid)
    assert real.alive
    other = replace(real, start_ticks=real.start_ticks - 1)
    assert not other.alive
    processes.end([other], 0.1)
    assert sleeper.poll() is None
    processes.end([real], 5)
    assert not real.alive, "a zombie is not alive"
    assert sleeper.wait() == -signal.SIGTERM


def test_what_ignores_sigterm_is_killed_after_the_grace() -> None:
    script = (
        "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        process = identify(child.pid)
        assert process is not None
        processes.end([process], 0.2)
        assert child.wait() == -signal.SIGKILL


def test_daemons_and_containers_are_found_by_their_own_mark_only(tmp_path: Path) -> None:
    """Only a process with exactly this work directory's mark, or a container directory below it, is found."""
    work = tmp_path / "w"
    mark = f"{processes.MARK}{work}"
    env = {**os.environ, "LOCAL_DIRS": f"{work}/nodemanager-0/local/application_1_0001"}
    with (
        subprocess.Popen([*SLEEP, mark]) as daemon,
        subprocess.Popen([*SLEEP, mark + "x"]) as other,
        subprocess.Popen(SLEEP, env=env) as container,
        subprocess.Popen(SLEEP, env={**env, "LOCAL_DIRS": f"{work}x/a"}) as stranger,
    ):
        try:
            deadline = time.monotonic() + 5  # a child has its arguments only after its exec
            while not (processes.daemons_of(work) and processes.containers_of(work)) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert [p.pid for p in processes.daemons_of(work)] == [daemon.pid]
            assert [p.pid for p in processes.containers_of(work)] == [container.pid]
            assert [p.pid for p in processes.containers_of(work, "application_1_0001")] == [container.pid]
            assert processes.containers_of(work, "application_1_00") == []
            assert processes.containers_of(work, "application_1_0002") == []
        finally:
            for child in (daemon, other, container, stranger):
                child.kill()


def test_the_watchdog_ends_daemons_when_their_owner_is_killed(tmp_path: Path) -> None:
    """kill -9 of the owner: a process with the mark ends soon after, and the watchdog itself is gone too."""
    owner_script = (
        "import os,sys,time,subprocess\n"
        "from pathlib import Path\n"
        "from dlobd.hadoop.embedded.processes import MARK\nfrom dlobd.process_id import identify\n"
        "from dlobd.hadoop.embedded.watchdog import start_watchdog\n"
        "dog = start_watchdog(Path(sys.argv[1]), identify(os.getpid()))\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(60)', MARK + sys.argv[1]]\n"
        "child = subprocess.Popen(sleep)\n"
        "print(dog.pid, child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    argv = [sys.executable, "-c", owner_script, str(tmp_path)]
    root = Path(processes.__file__).resolve().parents[2]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(root)}) as owner:
        watched = [identify(int(pid)) for pid in owner.stdout.readline().split()]
        assert len(watched) == 2
        known = [process for process in watched if process is not None]
        assert len(known) == 2
        owner.kill()
        assert processes.wait_gone(known, time.monotonic() + 20) == []


# ---- state and lock


def test_state_survives_writing_and_reading(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """What one command wrote another one reads back equal, and sees the process alive, then dead."""
    process = identify(sleeper.pid)
    assert process is not None
    assert read_state(tmp_path) is None
    write_state(tmp_path, state_of(process))
    state = read_state(tmp_path)
    assert state == state_of(process)
    assert state.alive() == {"namenode": process}
    assert replace(state, domain="host/earlier-boot/ns").alive() == {}, "no process outlives its boot"
    sleeper.kill()
    sleeper.wait()
    assert state.alive() == {}
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 99}'])
def test_a_state_that_cannot_be_understood_is_one_clear_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(ClusterError, match="cannot be read"):
        read_state(tmp_path)


def test_the_second_command_is_told_who_holds_the_cluster(tmp_path: Path) -> None:
    first, second = WorkDirLock(tmp_path), WorkDirLock(tmp_path)
    first.acquire()
    with pytest.raises(Busy, match=rf"pid {os.getpid()}\b"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_attach_says_that_no_cluster_runs(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="No cluster is running"):
        EmbeddedCluster.attach(tmp_path)
    write_state(tmp_path, state_of(ProcessId(2**22 - 1, 1)))
    with pytest.raises(ClusterError, match="No cluster is running"):
        EmbeddedCluster.attach(tmp_path)
    WorkDirLock(tmp_path).acquire()


# ---- what the machine must have


def test_too_little_memory_is_said_with_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "available_memory_bytes", lambda: 500 << 20)
    with pytest.raises(SetupError, match=r"6 daemons need 1920 MB .* 500 MB are available"):
        startup.check_memory(ClusterSettings(tmp_path))
    monkeypatch.setattr(startup, "available_memory_bytes", lambda: 1920 << 20)
    startup.check_memory(ClusterSettings(tmp_path))


def test_too_little_disk_is_said_with_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("usage", (), {"free": 300 << 20})
    monkeypatch.setattr("dlobd.hadoop.embedded.startup.shutil.disk_usage", lambda path: usage)
    with pytest.raises(SetupError, match=r"2048 MB of free disk, but .* has 300 MB"):
        startup.check_disk(tmp_path)


TAKEN = "1 x ERROR a.B: no\njava.net.BindException: Port in use: 127.0.0.1:1\n\tat x.Y\n2 x ERROR other Exception\n"
NESTED = "1 x INFO fine\njava.io.IOException: outer\n\tat x.SomeException.y\nCaused by: x.FooException: inner\n"


@pytest.mark.parametrize(
    ("log", "out", "expected", "clash"),
    [
        (TAKEN, "", "Port in use", True),
        (NESTED, "", "inner", False),
        ("", "Unrecognized VM option 'Z'\n", "Unrecognized VM option", False),
        ("", "", "its log is empty", False),
    ],
)
def test_the_cause_of_a_daemons_death_is_found(tmp_path: Path, log: str, out: str, expected: str, clash: bool) -> None:
    (tmp_path / "d.log").write_text(log)
    (tmp_path / "d.out").write_text(out)
    cause = daemons.failure(tmp_path, "d")
    assert expected in cause
    assert daemons.is_port_clash(cause) is clash
