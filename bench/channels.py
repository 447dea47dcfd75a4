"""Measure channels and exchanges without a cluster: dlobd's UCX channel against UCX's own program, dlobd's all-reduces
against MPI_Allreduce over the same link, and exchanges of a gradient of CIFAR-10 Quick.

    python -m bench.channels [--repeats N] [--perftest PROGRAM] [--loaded]

Hosts are network namespaces of this machine, which needs root. Each repeat measures all points one after the other.
Rerun the command to resume.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from bench import command, publish
from bench.tables import Table, number
from dlobd.axes import EXCHANGES, MODELS
from dlobd.compare.median import difference, ratio, ratios, spread
from dlobd.errors import SetupError
from dlobd.experiment import channels
from dlobd.microbench import ends, perftest, ranks
from dlobd.microbench.ends import Measure
from dlobd.microbench.hosts import INTERFACE, Host, hosts
from dlobd.microbench.ranks import MPI_ALLREDUCE, Work
from dlobd.network.channels.ucx.library import load
from dlobd.report import text
from dlobd.run import provenance
from dlobd.run.progress import Progress

NAME = "channel-bench"

PERFTEST = "ucx_perftest"

LATENCIES = tuple(
    Measure("latency", size_bytes, calls, 50)
    for size_bytes, calls in {8: 2000, 4 << 10: 2000, 64 << 10: 600, 256 << 10: 300, 1 << 20: 100, 4 << 20: 40}.items()
)
BANDWIDTHS = tuple(
    Measure("bandwidth", size_bytes, calls, 10)
    for size_bytes, calls in {64 << 10: 1500, 256 << 10: 600, 1 << 20: 200, 4 << 20: 50}.items()
)

CALLS = {4 << 10: 200, 64 << 10: 100, 256 << 10: 50, 1 << 20: 20, 4 << 20: 8, 16 << 20: 3, 64 << 20: 2}
"""Number of all-reduces by array size in bytes."""
ARRAYS = tuple(Work(((size_bytes // 4,),), calls, whole=False) for size_bytes, calls in CALLS.items())

LARGE = Work(((10_000_000,),), 2, whole=False)
"""Array of 40 MB. TensorFlow's own exchange is measured only with this size, because it starts slowly."""

REDUCERS = (
    (MPI_ALLREDUCE, "mpi"),
    *((name, library) for name in ("ring", "halving-doubling") for library in ("sockets", "ucx")),
)

TF_RING = ("tf-ring", "tensorflow")

MODEL = "cifar10-quick"
SLOW = "1gbit"
RANKS = 2

Found = dict[str, dict[str, float]]
"""Seconds by row and column."""


def main() -> int:
    """Run the command; return the exit code."""
    parser = command.parser(NAME, __doc__, repeats=6)
    beside = Path(sys.prefix, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages", "libucx")
    program = shutil.which(PERFTEST) or str(beside / "bin" / PERFTEST)
    parser.add_argument("--perftest", type=Path, default=Path(program), help="UCX's own ucx_perftest")
    return command.run(parser.parse_args(), NAME, _measure)


def _measure(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    if not asked.perftest.exists():
        raise SetupError(f"There is no {asked.perftest}.", "install ucx-utils, or give its path with --perftest")
    kept: dict[str, list[Found]] = {}
    for repeat in range(1, asked.repeats + 1):
        for part, measure in _parts(asked.perftest).items():
            progress(f"{part}, repeat {repeat} of {asked.repeats}")
            kept[part] = command.repeated(asked.out / f"{part}.json", repeat, measure)
    facts = [publish.machine([])[0], _versions()]
    publish.publish(asked.docs, NAME, facts, tables(kept))
    return [asked.docs / publish.PAGE, publish.store(asked.docs, NAME, {"facts": facts, "seconds": kept})]


def _versions() -> str:
    git = provenance.git() or {}
    commit = str(git.get("commit") or "-")[:12] + " with changes" * bool(git.get("dirty"))
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in ("mpich", "mpi4py", "grpcio", "tensorflow"))
    ucx = load()
    return f"UCX {'.'.join(map(str, ucx.version))} ({ucx.origin}), {packages}; dlobd at {commit}"


def _parts(program: Path) -> dict[str, Callable[[int], Found]]:
    return {
        "shm": lambda _: _ends(program, "shm", [Host("", "127.0.0.1")] * 2, ""),
        "tcp": lambda _: _on(2, lambda made: _ends(program, "tcp", made, INTERFACE)),
        "all-reduce-2": lambda _: _on(2, _all_reduces),
        "all-reduce-4": lambda _: _on(4, _all_reduces),
        "exchange": lambda _: _on(RANKS, _exchanges),
        "exchange-1gbit": lambda _: _on(RANKS, _exchanges, SLOW),
    }


def _on(count: int, measure: Callable[[Sequence[Host]], Found], rate: str = "") -> Found:
    with hosts(count, rate) as made:
        return measure(made)


def _ends(program: Path, transport: str, made: Sequence[Host], device: str) -> Found:
    every = (*LATENCIES, *BANDWIDTHS)
    rows = {PERFTEST: {one: perftest.measured(program, transport, made, device, one) for one in every}}
    for library in ("ucx", "sockets", "grpc"):
        rows[library] = ends.measured(library, transport if library == "ucx" else "tcp", device, made, every)
    return {label: {_column(one): seconds for one, seconds in row.items()} for label, row in rows.items()}


def _column(measure: Measure) -> str:
    return f"{measure.what} {measure.size_bytes}"


def _all_reduces(made: Sequence[Host]) -> Found:
    return {
        _label(exchange, library): {
            str(one.bytes): seconds
            for one, seconds in zip(
                work, ranks.measured(exchange, f"tcp@{INTERFACE}", library, made, work), strict=True
            )
        }
        for exchange, library, work in (*((*one, [*ARRAYS, LARGE]) for one in REDUCERS), (*TF_RING, [LARGE]))
    }


def _exchanges(made: Sequence[Host]) -> Found:
    """Measure every exchange of the registry over TCP, with each library."""
    shapes = tuple(tuple(map(int, one.shape)) for one in MODELS.get(MODEL)((32, 32, 3), 10, 0).trainable_variables)
    work = Work(shapes, 10, whole=True)
    found: Found = {}
    for exchange in EXCHANGES.names():
        for library in channels.libraries(exchange, "tcp"):
            (seconds,) = ranks.measured(exchange, f"tcp@{INTERFACE}", library, made, [work])
            found[_label(exchange, library)] = {"exchange": seconds}
    return found


def _label(exchange: str, library: str) -> str:
    return exchange if exchange == MPI_ALLREDUCE else f"{exchange} ({library})"


# ---- the page


def tables(kept: Mapping[str, list[Found]]) -> list[Table]:
    """Build the tables from all repeats of all parts."""
    made = [_ends_table(transport, kept[transport]) for transport in ("shm", "tcp")]
    made += [_all_reduce_table(count, kept[f"all-reduce-{count}"]) for count in (2, 4)]
    return [*made, _exchange_table(kept["exchange"], kept["exchange-1gbit"])]


def _of(found: Sequence[Found], label: str, column: str, scale: float) -> list[float | None]:
    return [one[label][column] * scale if column in one.get(label, {}) else None for one in found]


def _cell(values: Sequence[float | None]) -> str:
    around = spread(values)
    return f"{number(around.median)} ({number(around.low)}-{number(around.high)})" if around.n else "-"


def _ends_table(transport: str, found: Sequence[Found]) -> Table:
    libraries = [PERFTEST, "ucx", *(label for label in found[0] if label not in (PERFTEST, "ucx"))]
    rows = []
    for one in (*LATENCIES, *BANDWIDTHS):
        us = [_of(found, label, _column(one), 1e6) for label in libraries]
        reference, own = us[:2]
        if one.what == "latency":
            added = difference(own, reference)
            cells, compared, gap = us, ratios(own, reference), number(added.value if added else None)
        else:
            cells = [[one.size_bytes / value if value else None for value in values] for values in us]
            compared, gap = ratios(reference, own), ""
        first, second, *others = map(_cell, cells)
        rows.append([f"{one.what}, {_size(one.size_bytes)}", first, second, text.median(compared), gap, *others])
    where = "on one host; sockets and grpc over loopback" if transport == "shm" else "between two hosts"
    says = (
        f"One way, {where}. Latency in microseconds, bandwidth in MB/s; the ratio compares dlobd's channel ucx with "
        "UCX's own program. All except grpc keep 32 messages in flight. Medians of "
        f"{len(found)} runs, with minimum and maximum; ratio and addition are medians of values within runs. "
        f"Ratios: {text.MEDIANS}."
    )
    return Table(f"Channel {transport}", says, ["", *libraries[:2], "ratio", "added, us", *libraries[2:]], rows)


def _all_reduce_table(count: int, found: Sequence[Found]) -> Table:
    labels = list(found[0])
    rows = []
    for one in (*ARRAYS, LARGE):
        values = {label: _of(found, label, str(one.bytes), 1e3) for label in labels}
        over = {label: ratio(own, values[MPI_ALLREDUCE]) for label, own in values.items() if label != MPI_ALLREDUCE}
        bold = {label: f" **{times.value:.2f}**" for label, times in over.items() if times}
        rows.append([_size(one.bytes), *(_cell(own) + bold.get(label, "") for label, own in values.items())])
    says = (
        f"Milliseconds of one all-reduce between {count} hosts over the same link. Bold: ratio to MPI_Allreduce of "
        "MPICH over UCX, the median of the ratios within runs, without an interval. TensorFlow's ring is measured with "
        f"40 MB only. Medians of {len(found)} runs, with minimum and maximum."
    )
    return Table(f"All-reduce, {count} ranks", says, ["", *labels], rows)


def _exchange_table(fast: Sequence[Found], slow: Sequence[Found]) -> Table:
    rows = [[label, *(_cell(_of(found, label, "exchange", 1e3)) for found in (fast, slow))] for label in fast[0]]
    says = (
        f"Milliseconds of one exchange of the gradients of {MODEL} between {RANKS} ranks: pack, wait for peers, wire "
        "and unpack; for tf-ring, the whole collective. Links have the speed of this machine, or 1 Gbit/s."
    )
    return Table("An exchange in a step", says, ["", "unshaped", "1 Gbit/s"], rows)


def _size(size_bytes: int) -> str:
    if size_bytes % 10**6 == 0:
        return f"{size_bytes // 10**6} MB"
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= scale:
            return f"{size_bytes // scale} {unit}"
    return f"{size_bytes} B"


if __name__ == "__main__":
    sys.exit(main())
