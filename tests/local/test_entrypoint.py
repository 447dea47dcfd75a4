"""What a container of the mini-cluster runs first: its names, its limits, and whether this machine has room for it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import entrypoint
import pytest

from dlobd.errors import SetupError

SCRIPT = Path(__file__).parents[2] / "docker" / "entrypoint.py"

SAID = {"WORKERS": "3", "MASTER_MEMORY_MB": "1500", "WORKER_MEMORY_MB": "4000", "EDGE_MEMORY_MB": "2500"}
"""16000 MB in all."""


def machine_of(memory_mb: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrypoint.psutil, "virtual_memory", lambda: SimpleNamespace(total=memory_mb << 20))


def test_containers_that_fit_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_of(16000, monkeypatch)
    entrypoint.check_memory(SAID)


def test_containers_that_do_not_fit_are_told_with_all_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_of(15999, monkeypatch)
    with pytest.raises(SetupError) as refusal:
        entrypoint.check_memory(SAID)
    assert refusal.value.what == (
        "The containers may use 16000 MB of memory (1 x master 1500 + 3 x worker 4000 + 1 x edge 2500), "
        "but this machine has 15999 MB."
    )
    assert "WORKERS" in refusal.value.remedy
    assert "WORKER_MEMORY_MB" in refusal.value.remedy


def test_a_worker_without_room_for_a_job_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_of(16000, monkeypatch)
    with pytest.raises(SetupError, match="WORKER_MEMORY_MB=1024 leaves no memory"):
        entrypoint.check_memory({**SAID, "WORKER_MEMORY_MB": "1024"})


def test_it_ends_with_one_line_and_the_exit_code_of_dlobd() -> None:
    """As Docker runs it, so that `docker compose up` shows why nothing came up."""
    environment = {**SAID, "WORKERS": "1000000"}
    done = subprocess.run(
        [sys.executable, SCRIPT, "check"], env=environment, capture_output=True, text=True, check=False
    )
    (line,) = done.stderr.splitlines()
    assert line.startswith("dlobd: The containers may use 4000004000 MB of memory")
    assert (done.returncode, done.stdout) == (SetupError.exit_code, "")


def names(monkeypatch: pytest.MonkeyPatch, addresses: dict[str, str], hosts: dict[str, str]) -> None:
    """What DNS says; this container's own name is `2f1c`."""

    def address(name: str) -> str:
        if name not in addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return addresses[name]

    def host(address: str) -> tuple[str, list[str], list[str]]:
        if address not in hosts:
            raise socket.herror(1, "Unknown host")
        return hosts[address], [], [address]

    monkeypatch.setattr(socket, "gethostname", lambda: "2f1c")
    monkeypatch.setattr(socket, "gethostbyname", address)
    monkeypatch.setattr(socket, "gethostbyaddr", host)


def test_a_containers_name_is_that_on_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    names(
        monkeypatch,
        {"2f1c.dlobd-lan": "10.77.1.3", "2f1c.dlobd-fabric": "10.77.2.5"},
        {"10.77.1.3": "dlobd-worker-1.dlobd-lan", "10.77.2.5": "dlobd-worker-1.dlobd-fabric"},
    )
    assert entrypoint.address_on("dlobd-fabric") == "10.77.2.5"
    assert entrypoint.name_on("dlobd-lan") == "dlobd-worker-1.dlobd-lan"
    assert entrypoint.name_on("dlobd-fabric") == "dlobd-worker-1.dlobd-fabric"


def test_a_network_that_is_not_the_containers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, {"2f1c.dlobd-lan": "10.77.1.3"}, {})
    with pytest.raises(SetupError, match=r"has no 2f1c\.dlobd-wan.* connect this container to network dlobd-wan"):
        entrypoint.name_on("dlobd-wan")
    with pytest.raises(SetupError, match=r"no name for 10\.77\.1\.3: .*Unknown host"):
        entrypoint.name_on("dlobd-lan")


@pytest.fixture
def tc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `tc` that notes in this file how it was called, and may not do 2gbit; the network is the loopback one."""
    called = tmp_path / "called"
    script = tmp_path / "tc"
    script.write_text(
        f'#!/bin/sh\necho "$@" >> {called}\n'
        'case "$*" in *"rate 2gbit "*) echo "RTNETLINK answers:\n  Operation not permitted" >&2; exit 2 ;; esac\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    names(monkeypatch, {"2f1c.dlobd-fabric": "127.0.0.1"}, {})
    return called


@pytest.mark.parametrize(
    ("rate", "burst_bytes"), [("1gbit", 125_000), ("800mbit", 100_000), ("10mbit", 16_384), ("1kbit", 16_384)]
)
def test_a_rate_limits_the_networks_interface(tc: Path, rate: str, burst_bytes: int) -> None:
    """That with this container's address on it; again with another rate replaces the limit. What goes at once is what
    the rate gives in a millisecond, and never less than a packet."""
    entrypoint.limit("dlobd-fabric", rate)
    (words,) = tc.read_text().splitlines()
    assert words == f"qdisc replace dev lo root tbf rate {rate} burst {burst_bytes} latency 20ms"


@pytest.mark.parametrize("rate", ["fast", "0gbit", "1Gbit", "1gbps", "1.5gbit", "1gbit 2", "-1gbit", "gbit"])
def test_what_is_no_rate_is_told_in_one_line(tc: Path, rate: str) -> None:
    with pytest.raises(SetupError) as refusal:
        entrypoint.limit("dlobd-fabric", rate)
    assert refusal.value.line == f"FABRIC_RATE={rate} is not a rate. Next: write it as 1gbit or 100mbit"
    assert not tc.exists()


def test_a_limit_that_tc_cannot_set_is_told_in_one_line(tc: Path) -> None:
    with pytest.raises(SetupError) as refusal:
        entrypoint.limit("dlobd-fabric", "2gbit")
    assert refusal.value.line == (
        "tc cannot limit lo: RTNETLINK answers: Operation not permitted. "
        "Next: leave FABRIC_RATE empty, or add the capability NET_ADMIN"
    )
