"""Micro-benchmarks: that they measure what they say, between real processes; never how fast it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.channels import PERFTEST, tables
from dlobd.errors import SetupError
from dlobd.microbench import ends, perftest, ranks
from dlobd.microbench.ends import Measure
from dlobd.microbench.hosts import Host
from dlobd.microbench.ranks import MPI_ALLREDUCE, Work
from tests.namespaces import INTERFACE, hosts

pytestmark = pytest.mark.timeout(180)

HERE = Host("", "127.0.0.1")
SMALL, LARGE = Measure("latency", 8, 20, 2), Measure("latency", 8 << 20, 3, 1)
STREAM = Measure("bandwidth", 1 << 20, 5, 1)


@pytest.mark.parametrize(("library", "transport"), [("ucx", "shm"), ("sockets", "tcp"), ("grpc", "tcp")])
def test_a_large_message_takes_longer_than_a_small_one(library: str, transport: str) -> None:
    found = ends.measured(library, transport, "", [HERE, HERE], [SMALL, LARGE, STREAM])
    assert set(found) == {SMALL, LARGE, STREAM}
    assert 0 < found[SMALL] < found[LARGE]
    assert found[STREAM] > 0


def test_an_end_that_fails_is_one_line() -> None:
    with pytest.raises(SetupError, match=r"An end of ucx over tcp failed: .*This host has no interface 'eth77'"):
        ends.measured("ucx", "tcp", "eth77", [HERE, HERE], [SMALL])


def test_all_reduces_and_exchanges_between_hosts() -> None:
    array, tensors = Work(((1000,),), 3, whole=False), Work(((10, 10), (), (7,)), 3, whole=True)
    assert (array.bytes, tensors.bytes) == (4000, 432)
    with hosts(3) as made:
        for exchange, library, works in (
            (MPI_ALLREDUCE, "mpi", [array]),
            ("ring", "ucx", [array, tensors]),
            ("ps", "sockets", [array, tensors]),
        ):
            found = ranks.measured(exchange, f"tcp@{INTERFACE}", library, made, works)
            assert len(found) == len(works)
            assert min(found) > 0


def test_a_rank_that_fails_is_one_line() -> None:
    with pytest.raises(SetupError, match=r"Exchange ring failed in rank 0: .*no interface 'eth77'"):
        ranks.measured("ring", "tcp@eth77", "sockets", [HERE, HERE], [Work(((1,),), 1, whole=False)])


def test_the_program_of_ucx_is_read_by_its_header(tmp_path: Path) -> None:
    program = tmp_path / "ucx_perftest"
    program.write_text(
        "#!/bin/sh\n"
        "echo 'iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr'\n"
        "echo '20,1.0,2.0,3.5,4.0,2.0,6,7'\n"
    )
    program.chmod(0o755)
    assert perftest.measured(program, "shm", [HERE, HERE], "", SMALL) == pytest.approx(3.5e-6)
    assert perftest.measured(program, "shm", [HERE, HERE], "", STREAM) == pytest.approx(0.5)
    program.write_text("#!/bin/sh\necho no such test >&2\nexit 1\n")
    with pytest.raises(SetupError, match="ucx_perftest failed: no such test"):
        perftest.measured(program, "shm", [HERE, HERE], "", SMALL)


def test_tables_have_medians_and_ratios() -> None:
    pairs = {f"{what} {size}": 2e-6 for what in ("latency", "bandwidth") for size in (8, 4096, 65536, 262144)}
    pairs |= {f"{what} {size}": 1e-3 for what in ("latency", "bandwidth") for size in (1 << 20, 4 << 20)}
    own = {column: 3 * seconds for column, seconds in pairs.items()}
    between = [{PERFTEST: pairs, "ucx": own, "sockets": own}] * 3
    many = [{MPI_ALLREDUCE: {"4096": 1e-3}, "ring (sockets)": {"4096": 2e-3}}] * 3
    step = [{"ring (sockets)": {"exchange": 5e-3}}]
    made = {"shm": between, "tcp": between, "all-reduce-2": many, "all-reduce-4": many}
    shm, _, two, _, last = tables({**made, "exchange": step, "exchange-1gbit": step})
    assert shm.rows[0] == ["latency, 8 B", "2 (2-2)", "6 (6-6)", "3 [3 to 3]", "4", "6 (6-6)"]
    bandwidth = next(row for row in shm.rows if row[0] == "bandwidth, 64 KiB")
    assert bandwidth[1:5] == ["32,768 (32,768-32,768)", "10,923 (10,923-10,923)", "0.333 [0.333 to 0.333]", ""]
    assert two.rows[0] == ["4 KiB", "1 (1-1)", "2 (2-2) **2.00**"]
    assert two.rows[1] == ["64 KiB", "-", "-"]
    assert last.rows == [["ring (sockets)", "5 (5-5)", "5 (5-5)"]]
