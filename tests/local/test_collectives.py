"""All-reduces and the barrier, compared with numpy, for any number of ranks; ranks are threads."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlobd.network.channels.sockets import SocketsChannel
from dlobd.network.channels.ucx.channel import UcxChannel
from dlobd.network.collectives import mesh as meshes
from dlobd.network.collectives.all_reduce import SEGMENT_BYTES, AllReduce, HalvingDoubling, Ring
from dlobd.network.collectives.mesh import ExchangeFailed, Mesh
from tests.ranks import Meeting, on_ranks, soon, with_mesh

ALGORITHMS = [Ring, HalvingDoubling]
TYPES = [np.float16, np.float32, np.float64, np.int64]


def given_by(rank: int, count: int, dtype: Any) -> NDArray[Any]:
    """Return a rank's array of small integers, whose sum is exact in each type."""
    return np.random.default_rng(rank).integers(-9, 10, count).astype(dtype)


def reduced(algorithm: type[AllReduce], size: int, count: int, dtype: Any, make: Any = SocketsChannel) -> list[bytes]:
    """Return each rank's result of the second of two calls, which must not see the first one's memory."""

    def work(mesh: Mesh) -> bytes:
        all_reduce = algorithm(mesh)
        for _ in range(2):
            array = given_by(mesh.rank, count, dtype)
            all_reduce(array, soon())
        return array.tobytes()

    return with_mesh(size, algorithm.partners, work, make)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(deadline=None, max_examples=60)
@given(
    size=st.integers(1, 9),
    count=st.one_of(st.integers(0, 40), st.sampled_from([SEGMENT_BYTES // 4, SEGMENT_BYTES // 2 + 3])),
    dtype=st.sampled_from(TYPES),
)
def test_the_sum_is_that_of_numpy(algorithm: type[AllReduce], size: int, count: int, dtype: Any) -> None:
    expected = sum(given_by(rank, count, dtype) for rank in range(size)).astype(dtype).tobytes()
    assert reduced(algorithm, size, count, dtype) == [expected] * size


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_more_than_four_megabytes_over_sockets(algorithm: type[AllReduce], size: int) -> None:
    count = (5 << 20) // 4 + 1
    expected = sum(given_by(rank, count, np.float32) for rank in range(size)).tobytes()
    assert reduced(algorithm, size, count, np.float32, SocketsChannel) == [expected] * size


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("make", [SocketsChannel, UcxChannel])
@pytest.mark.parametrize("size", [2, 3])
def test_many_segments_are_pending_at_once(algorithm: type[AllReduce], make: Any, size: int) -> None:
    """More than the buffers hold, so that senders must receive, too."""
    count = (48 << 20) // 4
    expected = sum(given_by(rank, count, np.float32) for rank in range(size)).tobytes()
    assert reduced(algorithm, size, count, np.float32, make) == [expected] * size


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("size", range(2, 9))
def test_every_rank_has_the_same_bits(algorithm: type[AllReduce], size: int) -> None:
    def work(mesh: Mesh) -> bytes:
        array = np.random.default_rng(mesh.rank).standard_normal(1001).astype(np.float32)
        algorithm(mesh)(array, soon())
        return array.tobytes()

    here = with_mesh(size, algorithm.partners, work)
    assert len(set(here)) == 1
    if size < 5:
        assert with_mesh(size, algorithm.partners, work, SocketsChannel) == here
    whole = sum(np.random.default_rng(rank).standard_normal(1001).astype(np.float32) for rank in range(size))
    np.testing.assert_allclose(np.frombuffer(here[0], np.float32), whole, atol=1e-5)


@pytest.mark.parametrize("partners", [Ring.partners, HalvingDoubling.partners, meshes.barrier_partners])
def test_partners_are_mutual(partners: Any) -> None:
    for size in range(1, 40):
        for rank in range(size):
            own = partners(rank, size)
            assert rank not in own
            assert own <= set(range(size))
            assert all(rank in partners(peer, size) for peer in own)


@pytest.mark.parametrize("size", range(1, 8))
def test_no_rank_leaves_a_barrier_before_all_have_entered(size: int) -> None:
    came = [0] * size

    def work(mesh: Mesh) -> list[int]:
        least = []
        for _ in range(10):
            came[mesh.rank] += 1
            meshes.barrier(mesh, soon())
            least.append(min(came))
        return least

    for seen in with_mesh(size, meshes.barrier_partners, work):
        assert all(least >= k for k, least in enumerate(seen, 1))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("make", [SocketsChannel])
def test_a_rank_that_leaves_ends_the_others(algorithm: type[AllReduce], make: Any) -> None:
    """Rank 2 of 4 closes its mesh. The others fail long before their deadline; the partners of rank 2 name it."""
    began_s = time.monotonic()

    def work(mesh: Mesh) -> str:
        if mesh.rank == 2:
            return ""
        with pytest.raises(ExchangeFailed) as failed:
            algorithm(mesh)(np.zeros(1 << 20, np.float32), soon())
        return str(failed.value)

    said = with_mesh(4, algorithm.partners, work, make)
    assert time.monotonic() - began_s < 15
    for rank in {0, 1, 3} & algorithm.partners(2, 4):
        assert "rank" in said[rank]
    assert any("rank 2 is gone" in words for words in said)


def test_a_rank_that_does_not_answer_is_named_at_the_deadline() -> None:
    meanwhile = threading.Event()

    def work(mesh: Mesh) -> str:
        if mesh.rank == 1:
            meanwhile.wait(20)
            return ""
        try:
            with pytest.raises(ExchangeFailed) as failed:
                Ring(mesh)(np.zeros(10, np.float32), time.monotonic() + 0.1)
        finally:
            meanwhile.set()
        return str(failed.value)

    assert "rank 1 did not answer in time" in with_mesh(2, Ring.partners, work)[0]


def test_a_missing_partner_is_named() -> None:
    """Rank 1 has an address and does not listen."""
    meeting = Meeting(2)

    def work(rank: int) -> str:
        channel = SocketsChannel()
        if rank == 0:
            meeting.of(0)("listeners", "sockets:127.0.0.1:9")
            return ""
        with pytest.raises(ExchangeFailed) as failed:
            Mesh.join(1, 2, {0}, channel, meeting.of(1), time.monotonic() + 0.1)
        channel.close()
        return str(failed.value)

    assert on_ranks(2, work)[1] == "rank 0 did not connect to rank 1 in time"


def test_arrays_of_different_lengths_are_an_error() -> None:
    def work(mesh: Mesh) -> str:
        with pytest.raises(ExchangeFailed) as failed:
            Ring(mesh)(np.zeros(10 + 2 * mesh.rank, np.float32), soon())
        return str(failed.value)

    said = with_mesh(2, Ring.partners, work)
    assert any("bytes" in words for words in said)
