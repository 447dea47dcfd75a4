"""Libraries over IP between hosts whose interface names differ: the channel is an IPv4 network."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dlobd.axes import LIBRARIES
from dlobd.channel import Channel
from dlobd.micro.launch import Plan, launch
from dlobd.micro.payload import Payload
from dlobd.micro.plan import Point, Route
from dlobd.micro.ranks import MPI_ALLREDUCE
from dlobd.micro.results import Launch
from dlobd.network.verdict.evidence import TransportEvidence
from dlobd.network.verdict.rules import verdict
from tests.namespaces import INTERFACE, Host, hosts, with_other_name

pytestmark = pytest.mark.timeout(120)

NETWORK, OTHER = "10.79.0.0/24", "10.80.0.0/24"
PATIENCE_S = 30.0
SIZE = 3_000_000

END = """\
import json, sys, time
from dlobd.axes import LIBRARIES
from dlobd.network.channels.ip import local_address
from dlobd.network.verdict.evidence import Snapshot
from dlobd.network.verdict.evidence import record

def soon():
    return time.monotonic() + 30

library, network, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
before = Snapshot.read()
channel = LIBRARIES.get(library)("tcp", network, b"of this test")
memory = bytearray(size)
listens = sys.argv[4] == "listens"
if listens:
    listener = channel.listen()
    print(listener.address, flush=True)
    end = listener.accept(soon())
    end.send(end.recv(memory, soon()).to_bytes(4, "big"), soon())
    end.send(memory, soon())
    end.recv(memory, soon())  # it has all: nothing more is under way
else:
    end = channel.connect(sys.stdin.readline().strip(), soon())
    end.send(bytes(size), soon())
    end.recv(bytearray(4), soon())
    end.recv(memory, soon())
    end.send(b"all", soon())
told = channel.evidence()
print(json.dumps(record(
    int(not listens), library, before, lanes=told.lanes, traffic=told, addresses=[local_address("tcp", network)]
)), flush=True)
if listens:
    end.recv(memory, soon())
else:
    end.send(b"bye", soon())
channel.close()
"""


@pytest.fixture(scope="module")
def differing() -> Iterator[list[Host]]:
    """Two hosts on one network: by eth1, and by eth7, whose eth1 is on another network."""
    with hosts(2) as made:
        with_other_name(made[1], "eth7", "10.80.0.2/24")
        yield made


def end(library: str, network: str, role: str, host: Host) -> subprocess.Popen[str]:
    """Start a process on a host that listens or connects."""
    command = [*host.command, sys.executable, "-c", END, library, network, str(SIZE), role]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def met(library: str, network: str, places: list[Host]) -> list[TransportEvidence]:
    """Return the evidence of both ends, the listening one first."""
    first, second = (end(library, network, role, host) for role, host in zip(("listens", ""), places, strict=True))
    try:
        address = first.stdout.readline()
        assert f":{places[0].address}:" in address, first.communicate(timeout=PATIENCE_S)
        said = [second.communicate(address, PATIENCE_S), first.communicate(timeout=PATIENCE_S)]
    finally:
        for one in (first, second):
            one.kill()
            one.wait(PATIENCE_S)
    assert [one.returncode for one in (first, second)] == [0, 0], said
    return [TransportEvidence.from_attrs(json.loads(out.splitlines()[-1])) for out, _ in reversed(said)]


@pytest.mark.parametrize("library", ["sockets", "grpc", "ucx"])
def test_hosts_connect_in_a_network_by_different_interfaces(library: str, differing: list[Host]) -> None:
    """In both directions; the verdict agrees with the network, but not with a name or another network."""
    if reason := LIBRARIES.row(library).reason():
        pytest.skip(reason)
    for places in (differing, differing[::-1]):
        evidence = met(library, NETWORK, places)
        plane = verdict("exchange", Channel.parse(f"tcp@{NETWORK}"), evidence)
        assert (plane.kind, plane.interface, plane.agrees) == ("tcp", f"{INTERFACE}, eth7", True), plane.evidence
        assert verdict("exchange", Channel.parse(f"tcp@{INTERFACE}"), evidence).agrees is False
        other = verdict("exchange", Channel.parse(f"tcp@{OTHER}"), evidence)
        assert other.agrees is False
        assert other.disagreement().endswith(f"10.79.0.1, 10.79.0.2 are not in {OTHER}")


def exchanged(network: str, exchange: str, library: str, places: list[Host]) -> Launch:
    point = Point("exchange", Payload("1,000 floats", (4000,)), 0.1, shapes=((1000,),), whole=exchange != MPI_ALLREDUCE)
    return launch(Plan(Route(f"tcp@{network}", library, exchange), (point,), servers=0), places, 0)


@pytest.mark.parametrize(
    ("exchange", "library"), [(MPI_ALLREDUCE, "mpi"), ("ring", "ucx"), ("ps", "sockets"), ("tf-ring", "tensorflow")]
)
def test_exchanges_go_over_a_network(exchange: str, library: str, differing: list[Host]) -> None:
    if reason := LIBRARIES.row(library).reason():
        pytest.skip(reason)
    done = exchanged(NETWORK, exchange, library, differing)
    assert done.failed == ""
    assert min(done.points[0].times_ns) > 0
    assert done.points[0].bad == 0


def test_a_host_outside_the_network_is_an_error(differing: list[Host]) -> None:
    done = exchanged(OTHER, "ring", "sockets", differing)
    assert "process 0 on" in done.failed
    assert "no interface with an address in 10.80" in done.failed
    assert "10.79.0.1 (eth1)" in done.failed
