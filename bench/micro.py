"""Measure all channels and exchanges by themselves, and write docs/micro.md.

    python -m bench.micro [--launches N] [--perftest PROGRAM] [--loaded]

Hosts are network namespaces of this machine, which needs root. Each launch measures all parts one after the other, with
UCX's own program after dlobd's libraries. Then the studies of the papers, and predictions of real exchanges. Rerun
the command to resume.
"""

from __future__ import annotations

import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from analysis.__main__ import STUDIES
from analysis.studies import ar_grpc, payload_histogram, pictures, tf_grpc_bench
from bench import command, perftest, predictions, publish
from bench.tables import Table, markdown, number
from dlobd.axes import EXCHANGES
from dlobd.compare.median import median, ratio
from dlobd.errors import SetupError
from dlobd.experiment import channels
from dlobd.fields import decoded, plain
from dlobd.micro import estimates, results, study, table
from dlobd.micro.hosts import HERE, INTERFACE, Host, hosts
from dlobd.micro.launch import Plan
from dlobd.micro.payload import SCHEMES, name_of, payload, size_bytes
from dlobd.micro.plan import Point, Route
from dlobd.micro.ranks import MPI_ALLREDUCE
from dlobd.micro.request import Request
from dlobd.micro.results import Results
from dlobd.network.channels.ucx.library import load
from dlobd.paths import replace_file
from dlobd.report import tables, text
from dlobd.run import provenance
from dlobd.run.progress import Progress

NAME = "micro"
PAGE = "micro.md"
PERFTEST = "ucx_perftest"

LATENCIES = "8,1K,4K,16K,64K,256K,1M,4M"
BANDWIDTHS = "4K,64K,256K,1M,4M"
ARRAYS = "4K,16K,64K,256K,1M,4M,16M,64M"
MODEL = "cifar10-quick"
SLOW = "1gbit"
SECONDS = 0.3
PERFTEST_BYTES = 256 << 20  # bytes that ucx_perftest sends per point, at most MOST_CALLS messages
MOST_CALLS = 5000

Kept = dict[str, Any]
"""Results of one launch as JSON, and figures of ucx_perftest by benchmark and size."""


@dataclass(frozen=True)
class Part:
    """Part of the page.

    hosts: number of hosts, which are namespaces, or processes of this machine if `here`.
    rate: limit of each host's link.
    transport: transport of ucx_perftest; empty if it has no part in this.
    """

    title: str
    says: str
    plans: Callable[[], Sequence[Plan]]
    hosts: int = 2
    here: bool = False
    rate: str = ""
    transport: str = ""


TCP = f"tcp@{INTERFACE}"
OVER_TCP = tuple(Route(TCP, library) for library in ("sockets", "grpc", "ucx"))
OVER_SHM = (Route("shm", "ucx"),)


def _between(channel: str, libraries: Sequence[str]) -> list[Plan]:
    """Return latency and bandwidth over sizes, and put and get."""
    request = Request(("latency", "rate", "put", "get"), (channel,), tuple(libraries), sizes="", seconds=SECONDS)
    latency, _ = replace(request, benchmarks=("latency",), sizes=LATENCIES).plans(())
    more, _ = replace(request, benchmarks=("bandwidth", "bidirectional"), sizes=BANDWIDTHS).plans(())
    rest, _ = replace(request, benchmarks=("rate", "put", "get")).plans(())
    points = {plan.route: plan.points for plan in rest}
    return [
        replace(one, points=(*one.points, *two.points, *points[one.route]))
        for one, two in zip(latency, more, strict=True)
    ]


def _schemes(routes: Sequence[Route]) -> list[Plan]:
    """Return latency and bandwidth of TF-gRPC-Bench's schemes, and a serialized message of 64 KiB (its figure 7)."""
    points = [Point("latency", payload("64K"), SECONDS), Point("latency", payload("64K", serialized=True), SECONDS)]
    points += [Point(name, payload(scheme), SECONDS) for name in ("latency", "bandwidth") for scheme in SCHEMES]
    counts = [payload(",".join(["1M"] * count)) for count in (2, 4, 6, 8, 10)]
    points += [Point("latency", replace(one, name=f"{len(one.sizes)} x 1 MiB"), SECONDS) for one in counts]
    return [Plan(route, tuple(points), pins=True) for route in routes]


def _servers(routes: Sequence[Route]) -> list[Plan]:
    points = tuple(Point("ps", payload(scheme), SECONDS) for scheme in SCHEMES)
    return [Plan(route, points, servers=2) for route in routes]


def _all_reduces(ranks: int) -> list[Plan]:
    request = Request(("exchange",), (TCP,), sizes=ARRAYS, ranks=ranks, seconds=SECONDS)
    exchanges = (MPI_ALLREDUCE, "ring", "halving-doubling")
    both = replace(request, exchanges=exchanges, libraries=("mpi", "sockets", "ucx"))
    deepbench, _ = replace(request, exchanges=exchanges, sizes="deepbench").plans(())
    more = {plan.route: plan.points for plan in deepbench}
    return [replace(plan, points=(*plan.points, *more.get(plan.route, ()))) for plan in both.plans(())[0]]


def _exchanges() -> list[Plan]:
    """Return the exchange of a model's gradients by every exchange and library."""
    found = []
    for exchange in EXCHANGES.names():
        for library in channels.libraries(exchange, "tcp"):
            request = Request(("exchange",), (TCP,), (library,), (exchange,), model=MODEL, seconds=SECONDS)
            found += request.plans(())[0]
    return found


PARTS = {
    "tcp": Part("TCP between two hosts", "", lambda: _between(TCP, ()), transport="tcp"),
    "shm": Part("Shared memory of one host", "", lambda: _between("shm", ("ucx",)), here=True, transport="shm"),
    "schemes": Part(
        "TF-gRPC-Bench's payloads",
        "The paper's figures 7 to 12: one 64 KiB message, its schemes, and n buffers of 1 MiB.",
        lambda: _schemes(OVER_TCP),
    ),
    "schemes-shm": Part("TF-gRPC-Bench's payloads over shared memory", "", lambda: _schemes(OVER_SHM), here=True),
    "ps": Part(
        "TF-gRPC-Bench's parameter servers",
        "Two servers and three workers, as in the paper's figures 13 and 14.",
        lambda: _servers(OVER_TCP),
        5,
    ),
    "ps-shm": Part(
        "TF-gRPC-Bench's parameter servers over shared memory", "", lambda: _servers(OVER_SHM), 5, here=True
    ),
    "all-reduce-2": Part("All-reduce, 2 ranks", "", lambda: _all_reduces(2)),
    "all-reduce-4": Part("All-reduce, 4 ranks", "", lambda: _all_reduces(4), 4),
    "exchange": Part(f"Exchange of the gradients of {MODEL}", "Two ranks, unlimited links.", _exchanges),
    "exchange-slow": Part(
        f"Exchange of the gradients of {MODEL}, links of 1 Gbit/s", "Two ranks.", _exchanges, rate=SLOW
    ),
}


def main() -> int:
    """Run the command; return the exit code."""
    parser = command.parser(NAME, __doc__)
    beside = Path(sys.prefix, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages", "libucx")
    program = shutil.which(PERFTEST) or str(beside / "bin" / PERFTEST)
    parser.add_argument("--launches", type=int, default=10)
    parser.add_argument("--perftest", type=Path, default=Path(program), help="UCX's own ucx_perftest")
    return command.run(parser.parse_args(), NAME, _measure)


def _measure(asked: Namespace, progress: Progress) -> list[Path]:
    if not asked.perftest.exists():
        raise SetupError(f"There is no {asked.perftest}.", "install ucx-utils, or give its path with --perftest")
    kept: dict[str, list[Kept]] = {}
    for launch in range(1, asked.launches + 1):
        for name, part in PARTS.items():
            progress(f"{name}, launch {launch} of {asked.launches}")
            kept[name] = command.repeated(asked.out / f"{name}.json", launch, partial(_launched, part, asked.perftest))
    facts = [publish.machine([])[0], _versions()]
    sections = [section for name, part in PARTS.items() for section in sections_of(part, kept[name])]
    links = predictions.measure(asked.out / "predictions", asked.launches, progress)
    progress("studies of AR-gRPC")
    files = [
        _stored(asked.out / f"{name}-results.json", kept[name], facts[0])
        for name in PARTS
        if name.startswith(("schemes", "ps"))
    ]
    shown = {
        "tf_grpc_bench": tf_grpc_bench.report(Namespace(files=files)),
        "ar_grpc": ar_grpc.report(Namespace(launches=asked.launches, time=SECONDS, rate="")),
        "payload_histogram": payload_histogram.report(Namespace(model=None, ranks=2, runs=[])),
        "exchange_prediction": predictions.report(links),
    }
    sections += [_study(name, asked.docs, *one) for name, one in shown.items()]
    publish.page(asked.docs / PAGE, NAME, facts, sections)
    figures = {name: _figures(merged(of_part)) for name, of_part in kept.items()}
    return [asked.docs / PAGE, publish.store(asked.docs, NAME, {"facts": facts, "figures": figures})]


def _stored(path: Path, kept: Sequence[Kept], machine: str) -> Path:
    """Write the results of a part, as `dlobd micro -o` does."""
    replace_file(path, replace(merged(kept), machine=machine).text().encode())
    return path


def _study(name: str, docs: Path, texts: Iterable[str], picture: Figure | None) -> str:
    """Write the picture of a study; return its section."""
    assert picture is not None
    pictures.write(picture, path := docs / f"{name.replace('_', '-')}.svg")
    body = "\n".join(texts).rstrip()
    return f"### Study {name}\n\n![{STUDIES[name]}]({path.name})\n\n```\n{body}\n```"


def _launched(part: Part, program: Path, number: int) -> Kept:
    if part.here:
        return _on(part, program, [HERE] * part.hosts, "", number)
    with hosts(part.hosts, part.rate) as made:
        return _on(part, program, made, INTERFACE, number)


def _on(part: Part, program: Path, made: Sequence[Host], device: str, number: int) -> Kept:
    plans = [(plan, made) for plan in part.plans()]
    place = results.THIS if part.here else results.NAMESPACES
    empty = results.empty("", place, len(os.sched_getaffinity(0)))
    found = command.completed(study.run(empty, plans, 1, lambda _: None, first=number))
    figures = {}
    for benchmark, sizes in (("latency", LATENCIES), ("bandwidth", BANDWIDTHS)) if part.transport else ():
        for size in map(size_bytes, sizes.split(",")):
            calls = max(20, min(MOST_CALLS, PERFTEST_BYTES // size))
            figures[f"{benchmark} {size}"] = perftest.figure(
                program, part.transport, made, device, benchmark, size, calls
            )
    return {"results": plain(found), "perftest": figures}


def _versions() -> str:
    git = provenance.git() or {}
    commit = str(git.get("commit") or "-")[:12] + " with changes" * bool(git.get("dirty"))
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in ("mpich", "mpi4py", "grpcio", "tensorflow"))
    ucx = load()
    return f"UCX {'.'.join(map(str, ucx.version))} ({ucx.origin}), {packages}; dlobd at {commit}"


# ---- the page


def merged(kept: Sequence[Kept]) -> Results:
    """Return the results of all launches as one study."""
    every = [decoded(Results, one["results"]) for one in kept]
    launches = [replace(launch, number=k) for k, found in enumerate(every) for launch in found.launches]
    return replace(every[0], launches=tuple(launches))


def sections_of(part: Part, kept: Sequence[Kept]) -> list[str]:
    """Return the sections of a part: tables of dlobd's figures, then the comparisons with the references."""
    found = merged(kept)
    made = [f"### {part.title}\n\n{part.says}".rstrip()]
    for one in table.tables(found):
        shown = [place for place, column in enumerate(one.columns) if not column.page_only]
        rows = [[tables.cell(row[place], one.columns[place].unit, "-") for place in shown] for row in one.rows]
        made.append(f"{one.title}.\n\n{markdown([one.columns[place].name for place in shown], rows)}")
    made += [one.markdown() for one in (_against_perftest(found, kept), _against_mpi(found)) if one.rows]
    return made


def _against_perftest(found: Results, kept: Sequence[Kept]) -> Table:
    rows = []
    route = next((one for one in found.routes() if one.library == "ucx"), None)
    for point in found.points():
        key = f"{point.benchmark} {point.payload.bytes}"
        reference = [one["perftest"].get(key) for one in kept]
        if route is None or None in reference or point.benchmark not in perftest.TESTS:
            continue
        own = estimates.values(found, route, point)
        middle = median(reference)
        added = None if point.benchmark == "bandwidth" else median(a - b for a, b in zip(own, reference, strict=True))
        rows.append(
            [
                f"{point.benchmark}, {name_of(point.payload.bytes)}",
                number(middle.value if middle else None),
                text.estimate(ratio(own, reference)),
                number(added.value if added else None),
            ]
        )
    says = "ucx compared with UCX's own program in C, in the same launches: latency in us, bandwidth in MB/s."
    return Table("Against ucx_perftest", says, ["", PERFTEST, "ratio", "added, us"], rows)


def _against_mpi(found: Results) -> Table:
    routes = found.routes()
    reference = next((one for one in routes if one.exchange == MPI_ALLREDUCE), None)
    rows = []
    for point in found.points() if reference else []:
        assert reference is not None
        base = estimates.values(found, reference, point)
        every = [estimates.values(found, one, point) for one in routes if one != reference]
        rows.append([point.payload.name, *(text.estimate(ratio(own, base)) if own else "-" for own in every)])
    columns = ["", *(one.label for one in routes if one != reference)]
    return Table(
        "Against MPI_Allreduce", "Ratio of the times of one launch; below 1 is faster than MPICH.", columns, rows
    )


def _figures(found: Results) -> list[Mapping[str, Any]]:
    return [
        {
            "route": row.route.label,
            "benchmark": row.point.benchmark,
            "payload": table.described(row.point),
            "bytes": row.point.payload.bytes,
            "metric": row.metric,
            "values": estimates.values(found, row.route, row.point),
        }
        for row in estimates.rows(found)
    ]


if __name__ == "__main__":
    sys.exit(main())
