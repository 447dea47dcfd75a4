"""The exchange mpi: real MPI between fresh processes that use the driver's PMI server."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dlobd.errors import SetupError, UsageError
from dlobd.network.exchanges.mpi import environment
from tests.mpi_job import MpiJob, results
from tests.namespaces import hosts

pytest.importorskip("mpi4py", reason="library mpi needs mpi4py and mpich")
pytestmark = pytest.mark.slow  # each starts some processes

SUMS = """
    join()
    made = lambda of, count, dtype: np.random.default_rng(of).integers(-9, 10, count).astype(dtype)
    for count in COUNTS:
        for dtype in (np.float32, np.float64, np.float16, np.int64):
            for _ in range(2):
                own = [made(rank, count, dtype), made(rank + 99, 6, dtype).reshape(2, 3)]
                (first, second) = reduce(*own)
                np.testing.assert_array_equal(first, sum(made(r, count, dtype) for r in range(size)) / dtype(size))
                assert second.shape == (2, 3)
                second_sum = sum(made(r + 99, 6, dtype) for r in range(size))
                np.testing.assert_array_equal(second.ravel(), second_sum / dtype(size))
    exchange.close()
    print("well")
"""


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_mean_is_that_of_numpy(size: int) -> None:
    """For zero, one, an odd number of elements and more than 4 MiB, of each type."""
    counts = "[0, 1, 7, 1001, (5 << 20) // 4 + 1]"
    assert results(SUMS.replace("COUNTS", counts), size) == ["well\n"] * size


def test_shared_memory() -> None:
    """UCX's, and only if requested."""
    code = SUMS.replace("COUNTS", "[0, 1, 1001, (5 << 20) // 4 + 1]").replace(
        "    join()", '    exchange = MpiAllReduce(Settings(Channel("shm"), "mpi", 64 << 20, 1))\n    join()'
    )
    assert results(code, 3) == ["well\n"] * 3


@pytest.mark.parametrize("size", [8, 16])
def test_many_ranks(size: int) -> None:
    """More than this machine may have cores."""
    assert results(SUMS.replace("COUNTS", "[1001]"), size) == ["well\n"] * size


def test_every_rank_has_the_same_bits() -> None:
    code = """
        import hashlib
        join()
        (mean,) = reduce(np.random.default_rng(rank).standard_normal(100_003).astype(np.float32))
        print(hashlib.sha256(mean.tobytes()).hexdigest(), float(mean.sum(dtype=np.float64)))
        exchange.close()
    """
    said = results(code, 3)
    assert len(set(said)) == 1
    arrays = [np.random.default_rng(rank).standard_normal(100_003).astype(np.float32) for rank in range(3)]
    assert float(said[0].split()[1]) == pytest.approx(float(sum(arrays).sum() / 3), abs=0.1)


def test_bytes_go_over_the_interface_and_not_through_shared_memory() -> None:
    """Loopback counted at least 2 (n - 1) / n of the buffer per rank and sum."""
    sums, size_bytes, ranks = 5, 4_000_000, 2

    def counted() -> int:
        with open("/sys/class/net/lo/statistics/rx_bytes") as file:
            return int(file.read())

    before = counted()
    code = f"""
        join()
        for _ in range({sums}):
            reduce(np.ones({size_bytes} // 4, np.float32))
        exchange.close()
    """
    results(code, ranks)
    assert counted() - before >= sums * 2 * (ranks - 1) * size_bytes


def test_the_parts_of_an_exchange_are_spans(tmp_path: object) -> None:
    code = f"""
        import json, pathlib
        from dlobd import tracing
        directory = pathlib.Path({str(tmp_path)!r}) / str(rank)
        directory.mkdir()
        join()
        tracing.start(directory, "rank", rank)
        reduce(np.ones(1000, np.float32))
        tracing.flush()
        exchange.close()
        rows = [json.loads(line) for path in directory.iterdir() for line in path.read_text().splitlines()]
        print([row["n"] for row in rows if row.get("l") == "channel"])
    """
    for said in results(code, 2):
        assert said == "['pack', 'wait for peers', 'wire', 'unpack']\n"


def test_a_late_rank_is_awaited_before_the_wire() -> None:
    code = """
        join()
        for k in range(3):
            if rank == 1:
                time.sleep(0.3)
            began_s = time.monotonic()
            exchange.peers.barrier(0, began_s + 20)
            waited_s = time.monotonic() - began_s
            exchange.peers.all_reduce(np.ones(1000, np.float32), began_s + 20)
            print(int(waited_s > 0.2), int(time.monotonic() - began_s - waited_s > 0.2))
        exchange.close()
    """
    early, late = results(code, 2)
    assert early == "1 0\n" * 3
    assert late == "0 0\n" * 3


def test_a_missing_rank_is_named() -> None:
    code = """
        outside_step.JOIN_S = 1.0
        join()
    """
    with MpiJob(code, 3, ranks=[0, 2]) as job:
        ended = [job.ends(rank) for rank in (0, 2)]
    assert [status for status, _, _ in ended] == [1, 1]
    assert any("rank 1 did not reach" in errors.splitlines()[-1] for _, _, errors in ended)


def test_a_rank_that_dies_before_mpi_starts_is_named() -> None:
    code = """
        outside_step.JOIN_S = 2.0
        if rank == 1:
            import dlobd.network.exchanges.mpi as module
            module.connect_pmi = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        join()
    """
    with MpiJob(code, 3) as job:
        assert job.ends(1)[0] == -signal.SIGKILL
        for rank in (0, 2):
            status, _, errors = job.ends(rank)
            assert status == 1
            assert "rank 1 did not connect in time" in errors.splitlines()[-1]


def test_a_rank_that_dies_while_mpi_starts_ends_the_others(capfd: pytest.CaptureFixture[str]) -> None:
    code = """
        from dlobd.network.exchanges.mpi import MpiSession
        if rank == 1:
            MpiSession.__init__ = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        join()
    """
    with MpiJob(code, 3) as job:
        for rank in range(3):
            assert job.ends(rank)[0] != 0
    assert "rank 0 could not start MPI: rank 1 is gone" in capfd.readouterr().err


def test_a_wrong_secret_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    code = """
        outside_step.JOIN_S = 1.0
        join()
    """
    with MpiJob(code, 2, secrets={1: "another"}) as job:
        assert "the secret of this end is not the run's secret" in job.ends(1)[2].splitlines()[-1]
        assert "rank 1 did not reach" in job.ends(0)[2].splitlines()[-1]
    assert "does not have the run's secret" in capfd.readouterr().err


ONE_BY_ONE = """
    from dlobd.network.collectives.mesh import ExchangeFailed
    outside_step.DEADLINE_S = SECONDS
    join()
    try:
        for k in range(1_000_000):
            reduce(np.ones(200_000, np.float32))
            print(k, flush=True) if k < 3 else None
    except ExchangeFailed as error:
        print(error)
        sys.exit(7)
"""


def test_a_rank_that_is_killed_ends_the_others() -> None:
    with MpiJob(ONE_BY_ONE.replace("SECONDS", "60.0"), 4) as job:
        for rank in range(4):
            assert job.line(rank) == "0"
        began_s = time.monotonic()
        job.ranks[2].kill()
        for rank in (0, 1, 3):
            status, out, _ = job.ends(rank)
            assert status  # 7, or that of a crash where a call of MPI was left behind
            assert "rank 2 is gone" in out.splitlines()[-1]
        assert time.monotonic() - began_s < 30


def test_a_rank_that_stands_still_is_named_at_the_deadline() -> None:
    with MpiJob(ONE_BY_ONE.replace("SECONDS", "2.0"), 3) as job:
        for rank in range(3):
            assert job.line(rank) == "0"
        job.ranks[1].send_signal(signal.SIGSTOP)
        for rank in (0, 2):
            status, out, _ = job.ends(rank)
            assert status  # 7, or that of a crash where a call of MPI was left behind
            assert "time: rank 1 did not reach the rendezvous 'search for the blocked rank'" in out.splitlines()[-1]


def test_mpi_starts_once_in_a_process() -> None:
    code = """
        join()
        reduce(np.ones(3, np.float32))
        exchange.close()
        import socket
        from dlobd.errors import SetupError
        from dlobd.network.exchanges.mpi import MpiSession, environment
        own = socket.socket()
        try:
            MpiSession(environment("tcp", ""), own, rank, size)
        except SetupError as error:
            print(error)
        own.close()
    """
    for said in results(code, 2):
        assert said.startswith("MPI was started in this process before.")


def test_a_missing_transport_is_an_error() -> None:
    code = """
        from dlobd.errors import SetupError
        exchange = MpiAllReduce(Settings(Channel("rdma@nosuch0"), "mpi", 64 << 20, 1))
        try:
            join()
        except SetupError as error:
            print(error)
    """
    with MpiJob(code, 2) as job:
        for rank in range(2):
            out = job.ends(rank)[1]
            assert "MPI cannot start" in out
            assert "UCX_TLS=rc UCX_NET_DEVICES=nosuch0:1" in out
            assert out.count("\n") == 1


def test_exchanges_leave_no_descriptor_and_no_thread() -> None:
    code = """
        import threading
        join()
        count = lambda: (len(os.listdir("/proc/self/fd")), threading.active_count())
        reduce(np.ones(100_000, np.float32))
        before = count()
        for _ in range(200):
            reduce(np.ones(100_000, np.float32))
        assert count() == before, (before, count())
        assert not [name for name in os.environ if name.startswith(("PMI_", "MPICH_", "FI_"))]
        exchange.close()
    """
    results(code, 2)


def test_ranks_that_die_leave_no_shared_memory() -> None:
    code = """
        join()
        print([line.split()[5] for line in open("/proc/self/maps") if "/dev/shm/mpich" in line][0], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    with MpiJob(code, 2) as job:
        said = [job.ends(rank)[1] for rank in range(2)]
    for name in said:
        assert name.startswith("/dev/shm/mpich")
        assert not Path(name.strip()).exists()


def test_the_driver_keeps_no_thread_and_no_descriptor() -> None:
    def once(code: str) -> None:
        with MpiJob(code, 2) as job:
            for rank in range(2):
                job.ends(rank)

    well = "join(); reduce(np.ones(3, np.float32)); exchange.close()"
    once(well)
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for code in (well, "join(); os._exit(1)", "sys.exit()"):
        once(code)
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before


def test_a_single_rank_needs_no_mpi() -> None:
    assert results("join(); print(reduce(np.ones(2, np.float32)), 'mpi4py' in sys.modules); exchange.close()", 1) == [
        "[array([1., 1.], dtype=float32)] False\n"
    ]


def test_the_environment_of_each_transport() -> None:
    """Without a fallback; loopback uses libfabric, because UCX finds no route over it."""
    assert environment("shm", "")["UCX_TLS"] == "shm"
    rdma = environment("rdma", "mlx5_0:2")
    assert (rdma["UCX_TLS"], rdma["UCX_NET_DEVICES"]) == ("rc", "mlx5_0:2")
    assert environment("rdma", "mlx5_0")["UCX_NET_DEVICES"] == "mlx5_0:1"
    for device in ("", "lo", "127.0.0.1"):
        loopback = environment("tcp", device)
        assert (loopback["FI_PROVIDER"], loopback["FI_TCP_IFACE"]) == ("tcp", "lo")
    for transport in ("shm", "rdma", "tcp"):
        assert environment(transport, "lo")["MPIR_CVAR_NOLOCAL"] == "1"
    with pytest.raises(UsageError, match="cannot carry 'memory'"):
        environment("memory", "")
    with pytest.raises(UsageError, match="needs the name of its device"):
        environment("rdma", "")
    with pytest.raises(UsageError, match="no interface 'nosuch0'"):
        environment("tcp", "nosuch0")
    with pytest.raises(SetupError, match=r"no interface with the address 192\.0\.2\.77"):
        environment("tcp", "192.0.2.77")
    with pytest.raises(SetupError, match="cannot carry IPoIB"):
        environment("ipoib", "lo")


@pytest.fixture
def two() -> Iterator[list[tuple[str, str]]]:
    """Address and namespace of two hosts with a link between them."""
    with hosts(2) as found:
        yield [(host.address, host.namespace) for host in found]


def counted(namespace: str) -> tuple[int, int]:
    """Return the bytes received over eth1 and over loopback."""
    out = subprocess.run(
        ["ip", "netns", "exec", namespace, "cat", "/proc/net/dev"],
        check=True,
        capture_output=True,
        text=True,
        timeout=20,
    ).stdout
    found = {
        name.strip(): int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in out.splitlines()[2:])
    }
    return found["eth1"], found["lo"]


@pytest.mark.parametrize("size", [2, 4])
def test_ucx_between_two_hosts(two: list[tuple[str, str]], size: int) -> None:
    places = [two[rank % 2] for rank in range(size)]
    code = """
        join()
        for _ in range(5):
            (mean,) = reduce(np.full(1_000_000, rank, np.float32))
            assert (mean == (size - 1) / 2).all()
        preset = exchange.peers.session.preset
        print(preset["MPICH_CH4_NETMOD"], preset["UCX_TLS"], preset["UCX_NET_DEVICES"])
        exchange.close()
    """
    before = [counted(name) for _, name in two]
    assert results(code, size, places) == ["ucx tcp eth1\n"] * size
    after = [counted(name) for _, name in two]
    for (link, loopback), (link_then, loopback_then) in zip(before, after, strict=True):
        assert link_then - link > 5 * 4_000_000 / 2
        if size == 2:
            assert loopback_then - loopback < 1_000_000


@pytest.mark.parametrize("waited_for", [True, False])
def test_a_rank_that_is_killed_on_another_host_ends_the_others(two: list[tuple[str, str]], waited_for: bool) -> None:
    places = [two[rank % 2] for rank in range(3)]
    dies = "os.kill(os.getpid(), signal.SIGKILL) if (rank, k) == (1, 3) else None"
    code = ONE_BY_ONE.replace("SECONDS", "60.0")
    if waited_for:
        code = code.replace("        reduce(", f"        {dies}\n            reduce(")
    with MpiJob(code, 3, hosts=places) as job:
        for rank in range(3):
            assert job.line(rank) == "0"
        if not waited_for:
            job.ranks[1].kill()
        for rank in (0, 2):
            status, out, _ = job.ends(rank)
            assert status  # 7, or that of a crash where a call of MPI was left behind
            if waited_for or status == 7:
                assert "rank 1 is gone" in out.splitlines()[-1]
            else:
                assert status < 0


def test_ranks_on_loopback_and_ranks_on_a_link_are_an_error(two: list[tuple[str, str]]) -> None:
    code = """
        from dlobd.network.collectives.mesh import ExchangeFailed
        host = "127.0.0.1" if rank else host
        try:
            join()
        except ExchangeFailed as error:
            print(error)
    """
    with MpiJob(code, 2, hosts=[two[0]] * 2) as job:
        for rank in range(2):
            assert job.ends(rank)[1] == "ranks on loopback cannot reach other hosts by MPI: rank 0 ucx, rank 1 ofi\n"
