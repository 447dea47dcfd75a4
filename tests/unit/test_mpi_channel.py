"""Library mpi between processes that have begun MPI together; tests/contract has what all libraries share."""

from __future__ import annotations

import pytest
from mpi_job import MpiJob, results

pytest.importorskip("mpi4py", reason="library mpi needs mpi4py and mpich")
pytestmark = pytest.mark.slow  # each starts some processes

BEGIN = """
    from dlobd.network.channels.base import DeadlinePassed, PeerClosed
    from dlobd.network.channels.mpi import MpiChannel
    soon = lambda: time.monotonic() + 20
    join()
    channel = MpiChannel()
    gather = lambda name, value: exchange._entry.exchange(name, value, soon())
"""

PAIR = (
    BEGIN
    + """
    if rank == 0:
        listener = channel.listen()
    address = gather("address", listener.address if rank == 0 else "")[0]
    end = listener.accept(soon()) if rank == 0 else channel.connect(address, soon())
"""
)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_ring_of_processes(size: int) -> None:
    """dlobd's own all-reduce over MPI's messages; the evidence says what was carried, and by what."""
    code = (
        BEGIN
        + """
    from dlobd.network.collectives.mesh import Mesh
    from dlobd.network.collectives.ring import Ring
    mesh = Mesh.join(rank, size, Ring.partners(rank, size), channel, gather, soon())
    for count in (0, 1, 1001, (5 << 20) // 4 + 1):
        array = np.full(count, rank + 1, np.float32)
        Ring(mesh)(array, soon())
        assert (array == size * (size + 1) / 2).all()
    reduce(np.ones(1, np.float32))
    mesh.close()
    channel.close()
    carried = channel.evidence()
    assert carried.sent_bytes >= 5 << 20
    print(carried.kind, carried.device)
    exchange.close()
"""
    )
    assert results(code, size) == ["tcp lo\n"] * size


def test_a_message_in_parts_between_processes() -> None:
    """Cut in one way where it is sent, and in another where it is received."""
    code = (
        PAIR
        + """
    whole = np.arange(3_000_001, dtype=np.uint8)
    if rank == 0:
        end.send_parts([whole[:7], whole[7:7], whole[7:2_000_000], whole[2_000_000:]], soon())
    else:
        into = [np.zeros(1_500_000, np.uint8), bytearray(3), np.zeros(2_000_000, np.uint8)]
        assert end.recv_parts(into, soon()) == len(whole)
        assert b"".join(bytes(part) for part in into)[: len(whole)] == whole.tobytes()
    reduce(np.ones(1, np.float32))
    channel.close()
    exchange.close()
"""
    )
    results(code, 2)


def test_a_peer_that_closes_is_told_between_processes() -> None:
    """What it has sent before is still received."""
    code = (
        PAIR
        + """
    if rank == 0:
        end.send(b"last", soon())
        end.close()
    else:
        memory = bytearray(9)
        assert end.recv(memory, soon()) == 4
        try:
            end.recv(memory, soon())
        except PeerClosed as error:
            print(error)
    reduce(np.ones(1, np.float32))
    channel.close()
    exchange.close()
"""
    )
    assert results(code, 2)[1].startswith("rank 0 ")


def test_a_peer_that_was_killed_is_seen_by_the_deadline() -> None:
    """MPI does not say it before."""
    code = (
        PAIR
        + """
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        end.recv(bytearray(1), time.monotonic() + 1)
    except DeadlinePassed as error:
        print(error)
"""
    )
    with MpiJob(code, 2) as job:
        assert job.ends(1)[:2] == (0, "rank 0 sent no message in time\n")


def test_another_transport_in_the_same_process_is_an_error() -> None:
    """A process has one MPI, with one transport."""
    code = (
        BEGIN
        + """
    from dlobd.errors import SetupError
    try:
        MpiChannel("shm")
    except SetupError as error:
        print(error)
    for address in ("mpi:2:0", "sockets:127.0.0.1:1", "mpi:0:x"):
        try:
            channel.connect(address, soon())
        except ValueError as error:
            print(error)
    exchange.close()
"""
    )
    for said in results(code, 2):
        assert said.startswith("MPI carries something else in this process: ")
        assert said.count("is no address of library mpi among 2 ranks") == 3
