"""Measures channels and exchanges by themselves, and writes docs/results.md: what C reaches by the same UCX, what
MPI_Allreduce takes over the same link, and what an exchange of a CIFAR-sized gradient costs.

    python -m bench.channels [--repeats N] [--perftest PROGRAM] [--loaded]

Hosts are network namespaces of this machine, which needs root; everything is interleaved, repeat by repeat. The same
command goes on where it was ended.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
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
from dlobd.paths import replace_file
from dlobd.report import text
from dlobd.run import provenance
from dlobd.run.progress import Progress

NAME = "channel-bench"

PERFTEST = "ucx_perftest"

LATENCIES = tuple(
    Measure("latency", size_bytes, calls, 50)
    for size_bytes, calls in (
        (8, 2000),
        (4 << 10, 2000),
        (64 << 10, 600),
        (256 << 10, 300),
        (1 << 20, 100),
        (4 << 20, 40),
    )
)
BANDWIDTHS = tuple(
    Measure("bandwidth", size_bytes, calls, 10)
    for size_bytes, calls in ((64 << 10, 1500), (256 << 10, 600), (1 << 20, 200), (4 << 20, 50))
)

ARRAYS = tuple(
    Work(((size_bytes // 4,),), calls, whole=False)
    for size_bytes, calls in (
        (4 << 10, 200), (64 << 10, 100), (256 << 10, 50), (1 << 20, 20), (4 << 20, 8), (16 << 20, 3), (64 << 20, 2),
    )
)  # fmt: skip

LARGE = Work(((10_000_000,),), 2, whole=False)
"""40 MB, as far as TensorFlow's own exchange is compared: it starts slowly, and is not asked for all sizes."""

REDUCERS = (
    (MPI_ALLREDUCE, "mpi"),
    *((name, library) for name in ("ring", "halving-doubling") for library in ("sockets", "ucx")),
)

MODEL = "cifar10-quick"
SLOW = "1gbit"
RANKS = 2

Found = dict[str, dict[str, float]]
"""Row to column to seconds."""


def main() -> int:
    """Return the exit code."""
    parser = command.parser(NAME, __doc__, repeats=6)
    beside = Path(sys.prefix, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages", "libucx")
    program = shutil.which(PERFTEST) or str(beside / "bin" / PERFTEST)
    parser.add_argument("--perftest", type=Path, default=Path(program), help="UCX's own ucx_perftest")
    return command.run(parser.parse_args(), NAME, _measure)


def _measure(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    if not asked.perftest.exists():
        raise SetupError(f"There is no {asked.perftest}.", "install ucx-utils, or name it by --perftest")
    parts = dict(_parts(asked.perftest))
    kept: dict[str, list[Found]] = {part: [] for part in parts}
    asked.out.mkdir(parents=True, exist_ok=True)
    for repeat in range(asked.repeats):
        for part, measure in parts.items():
            path = asked.out / f"{part}-{repeat}.json"
            if not path.exists():
                progress(f"{part}, repeat {repeat + 1} of {asked.repeats}")
                replace_file(path, json.dumps(measure()).encode())
            kept[part].append(json.loads(path.read_text()))
    facts = [publish.machine([])[0], _versions()]
    publish.store(asked.docs, NAME, {"facts": facts, "seconds": kept})
    publish.publish(asked.docs, NAME, facts, tables(kept))
    return [asked.docs / publish.PAGE, asked.docs / f"{NAME}.json"]


def _versions() -> str:
    """Of the libraries that are compared, and of dlobd."""
    git = provenance.git() or {}
    commit = str(git.get("commit") or "-")[:12] + " with changes" * bool(git.get("dirty"))
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in ("mpich", "mpi4py", "grpcio", "tensorflow"))
    ucx = load()
    return f"UCX {'.'.join(map(str, ucx.version))} ({ucx.origin}), {packages}; dlobd at {commit}"


def _parts(program: Path) -> Iterator[tuple[str, Callable[[], Found]]]:
    """Name to what measures it once."""
    yield "shm", lambda: _ends(program, "shm", [Host("", "127.0.0.1")] * 2, "")
    yield "tcp", lambda: _on(2, lambda made: _ends(program, "tcp", made, INTERFACE))
    for count in (2, 4):
        yield f"all-reduce-{count}", lambda count=count: _on(count, _all_reduces)  # type: ignore[misc]
    yield "exchange", lambda: _on(RANKS, _exchanges)
    yield "exchange-1gbit", lambda: _on(RANKS, _exchanges, SLOW)


def _on(count: int, measure: Callable[[Sequence[Host]], Found], rate: str = "") -> Found:
    with hosts(count, rate) as made:
        return measure(made)


def _ends(program: Path, transport: str, made: Sequence[Host], device: str) -> Found:
    """Each library that carries it; of one host TCP's go over loopback."""
    every = (*LATENCIES, *BANDWIDTHS)
    found: dict[str, dict[Measure, float]] = {
        PERFTEST: {one: perftest.measured(program, transport, made, device, one) for one in every}
    }
    for library in ("ucx", "sockets", "grpc"):
        carries = transport if library == "ucx" else "tcp"
        found[library] = ends.measured(library, carries, device, made, every)
    return {label: {_column(one): seconds for one, seconds in row.items()} for label, row in found.items()}


def _column(measure: Measure) -> str:
    return f"{measure.what} {measure.size_bytes}"


def _all_reduces(made: Sequence[Host]) -> Found:
    found: Found = {}
    for exchange, library in REDUCERS:
        seconds = ranks.measured(exchange, f"tcp@{INTERFACE}", library, made, [*ARRAYS, LARGE])
        found[_label(exchange, library)] = {
            str(one.bytes): took for one, took in zip([*ARRAYS, LARGE], seconds, strict=True)
        }
    (large,) = ranks.measured("tf-ring", f"tcp@{INTERFACE}", "tensorflow", made, [LARGE])
    found[_label("tf-ring", "tensorflow")] = {str(LARGE.bytes): large}
    return found


def _exchanges(made: Sequence[Host]) -> Found:
    """Every exchange of the registry, over each library's TCP."""
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


def tables(kept: dict[str, list[Found]]) -> list[Table]:
    """Of all repeats of all parts."""
    made = [_ends_table(transport, kept[transport]) for transport in ("shm", "tcp")]
    made += [_all_reduce_table(count, kept[f"all-reduce-{count}"]) for count in (2, 4)]
    return [*made, _exchange_table(kept["exchange"], kept["exchange-1gbit"])]


def _of(found: Sequence[Found], label: str, column: str, scale: float) -> list[float | None]:
    return [one[label][column] * scale if column in one.get(label, {}) else None for one in found]


def _cell(values: list[float | None]) -> str:
    """Median and extremes."""
    around = spread(values)
    if around.median is None:
        return "-"
    return f"{number(around.median)} ({number(around.low)}-{number(around.high)})"


def _ends_table(transport: str, found: Sequence[Found]) -> Table:
    libraries = [label for label in found[0] if label not in (PERFTEST, "ucx")]
    rows = []
    for one in (*LATENCIES, *BANDWIDTHS):
        column = _column(one)
        values = {label: _of(found, label, column, 1e6) for label in found[0]}
        reference, own = values[PERFTEST], values["ucx"]
        compared = text.median(ratios(own, reference) if one.what == "latency" else ratios(reference, own))
        added = difference(own, reference)
        shown = [
            _cell(each if one.what == "latency" else [one.size_bytes / us if us else None for us in each])
            for each in (reference, own, *(values[label] for label in libraries))
        ]
        gap = number(added.value if added else None) if one.what == "latency" else ""
        rows.append([f"{one.what}, {_size(one.size_bytes)}", *shown[:2], compared, gap, *shown[2:]])
    where = "on one host; sockets and grpc over loopback" if transport == "shm" else "between two hosts"
    says = (
        f"One way, {where}. Latency in microseconds: the ratio is ours to UCX's own program. Bandwidth in MB/s: the "
        "ratio is ours to its; all but grpc keep 32 messages under way. Medians of "
        f"{len(found)} runs, with the lowest and the highest; of ratios and of what is added, medians of those within "
        f"runs. Of ratios {text.MEDIANS}."
    )
    columns = ["", PERFTEST, "ucx", "ratio", "added, us", *libraries]
    return Table(f"Channel {transport}", says, columns, rows, {"seconds": list(found)})


def _all_reduce_table(count: int, found: Sequence[Found]) -> Table:
    labels = list(found[0])
    rows = []
    for one in (*ARRAYS, LARGE):
        values = {label: _of(found, label, str(one.bytes), 1e3) for label in labels}
        base = values[MPI_ALLREDUCE]
        over = {label: ratio(own, base) for label, own in values.items() if label != MPI_ALLREDUCE}
        cells = [
            _cell(values[label]) + (f" **{ratio_of.value:.2f}**" if (ratio_of := over.get(label)) else "")
            for label in labels
        ]
        rows.append([_size(one.bytes), *cells])
    says = (
        f"Milliseconds of one all-reduce between {count} hosts over the same link; in bold the ratio to MPI_Allreduce "
        "of MPICH over UCX, the median of those within runs, without an interval. TensorFlow's ring is asked for 40 MB "
        f"only. Medians of {len(found)} runs, lowest and highest."
    )
    return Table(f"All-reduce, {count} ranks", says, ["", *labels], rows, {"seconds": list(found)})


def _exchange_table(fast: Sequence[Found], slow: Sequence[Found]) -> Table:
    rows = [
        [label, _cell(_of(fast, label, "exchange", 1e3)), _cell(_of(slow, label, "exchange", 1e3))] for label in fast[0]
    ]
    says = (
        f"Milliseconds of one exchange of the gradients of {MODEL} between {RANKS} ranks: pack, wait for peers, wire "
        "and unpack; of tf-ring the whole collective. Links are as fast as this machine is, or limited to 1 Gbit/s."
    )
    return Table(
        "An exchange in a step", says, ["", "unshaped", "1 Gbit/s"], rows, {"fast": list(fast), "slow": list(slow)}
    )


def _size(size_bytes: int) -> str:
    if size_bytes % 10**6 == 0:
        return f"{size_bytes // 10**6} MB"
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= scale:
            return f"{size_bytes // scale} {unit}"
    return f"{size_bytes} B"


if __name__ == "__main__":
    sys.exit(main())
