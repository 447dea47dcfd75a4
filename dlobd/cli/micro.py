"""`dlobd micro`: measures channels and exchanges without a training job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Option

from dlobd.cli.options import RUNS, Archive, HadoopConf, Json, Out
from dlobd.cli.output import Force
from dlobd.cli.printing import console, find_run
from dlobd.errors import Interrupted, RunFailed, RunInvalid, UsageError

if TYPE_CHECKING:
    from dlobd.micro.request import Request
    from dlobd.micro.results import Results
    from dlobd.report.tables import Table

HERE, SERVE = "here", "serve"
REPLAY = "replay"
ONLY = {"rate": "latency", "servers": "ps", "workers": "ps", "exchanges": "exchange", "model": "exchange"}
"""Parameter of a single benchmark -> that benchmark."""

TYPES = (".json", ".html")


def micro(
    context: Context,
    benchmarks: Annotated[
        list[str] | None,
        Argument(
            metavar="[BENCHMARK]...",
            help="latency, bandwidth, bidirectional, rate, ps, exchange, put, get, replay; default: latency bandwidth "
            "rate. `serve` starts an agent for --on HOST.",
        ),
    ] = None,
    channels: Annotated[
        list[str] | None,
        Option("--channel", metavar="CHANNEL", help="tcp@eth0, ipoib@ib0, rdma@mlx5_0:1, shm; repeatable."),
    ] = None,
    libraries: Annotated[
        list[str] | None,
        Option("--library", metavar="LIBRARY", help="sockets, grpc, ucx, or bare; repeatable. Default: all."),
    ] = None,
    exchanges: Annotated[
        list[str] | None, Option("--exchange", metavar="EXCHANGE", help="Exchange, or MPI_Allreduce; repeatable.")
    ] = None,
    on: Annotated[
        str,
        Option(
            metavar="PLACE",
            help="here: two processes; namespaces: hosts made of network namespaces (root); yarn: barrier tasks on the "
            "executors of a YARN cluster; spark: the same in a Spark application; or agents HOST:PORT,HOST:PORT.",
        ),
    ] = HERE,
    sizes: Annotated[str, Option(metavar="SIZES", help="Sizes of messages, as in 8,64K,1M; or deepbench.")] = "",
    scheme: Annotated[
        str, Option("--payload", metavar="SCHEME", help="uniform, random, skew, or sizes of buffers, as in 10,1M.")
    ] = "",
    buffers: Annotated[int, Option(help="Buffers of a message of --payload.")] = 10,
    classes: Annotated[str, Option(metavar="CLASSES", help="Size classes of --payload.")] = "small,medium,large",
    prefer: Annotated[str, Option(metavar="CLASS", help="Preferred class of scheme skew.")] = "large",
    serialized: Annotated[bool, Option("--serialized", help="Messages are protobuf messages.")] = False,
    seconds: Annotated[
        float, Option("--time", min=0, max=3600, metavar="S", help="Recorded time of a point; 0: 0.5 s.")
    ] = 0,
    warm_up_s: Annotated[float, Option("--warm-up", min=0, max=3600, metavar="S", help="Time before it.")] = 0.1,
    launches: Annotated[int, Option(min=0, max=1000, help="Launches of all processes; 0: 6, with --quick 2.")] = 0,
    window: Annotated[int, Option(min=1, max=1024, help="Messages in flight.")] = 32,
    rate: Annotated[
        float, Option(min=0, max=1e6, metavar="R", help="Open loop: R calls per second, at random times.")
    ] = 0,
    servers: Annotated[int, Option(min=1, max=64, help="Parameter servers of ps.")] = 2,
    workers: Annotated[int, Option(min=1, max=64, help="Workers of ps.")] = 3,
    ranks: Annotated[int, Option(min=2, max=64, help="Ranks of exchange.")] = 2,
    model: Annotated[str, Option(metavar="MODEL", help="exchange: gradients of this model.")] = "",
    link: Annotated[str, Option(metavar="RATE", help="namespaces: rate of each host, as in 1gbit.")] = "",
    seed: Annotated[int, Option(help="Seed of scheme random and of arrivals.")] = 0,
    quick: Annotated[bool, Option("--quick", help="Fewer sizes and two launches: the default table in 60 s.")] = False,
    pairs: Annotated[bool, Option("--pairs", help="Measure all pairs of the hosts of --ranks processes.")] = False,
    run: Annotated[str, Option(metavar="RUN", help="replay: bundle path, run ID, or latest.")] = "",
    compare: Annotated[bool, Option("--compare", help="Compare every channel with the first.")] = False,
    listen: Annotated[
        str, Option(metavar="DEVICE", help="serve: interface, address or network; default: loopback.")
    ] = "",
    hadoop_conf: HadoopConf = None,
    archive: Archive = None,
    out: Out = RUNS,
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FILE", help="Write the results as .json, or a page as .html.")
    ] = None,
    as_json: Json = False,
    force: Force = False,
) -> int:
    """Measure latency, bandwidth and other figures of each channel and library.

    All processes are new in each launch; intervals are over launches. Every message is verified.

    Exit code 5: a launch failed; the completed points are printed. 6: wrong content, or another transport than
    requested. 130: interrupted; the completed launches are printed, except with --on yarn.
    """
    from dlobd.cli.output import checked
    from dlobd.cli.run import external_cluster
    from dlobd.micro import agent, places
    from dlobd.micro.request import DEFAULT, Request
    from dlobd.micro.results import NAMESPACES
    from dlobd.run.progress import Progress

    if benchmarks == [SERVE]:
        agent.listen(listen, places.secret(), lambda address: print(f"listening: {address}", flush=True))
    if bool(run) != (replays := REPLAY in (benchmarks or ())) and not (replays and scheme):
        what = "The benchmark replay needs --run, and no other benchmark has it."
        raise UsageError(what, f"dlobd micro {REPLAY} --run latest")
    for name, option in _given(context).items():
        if name in ONLY and ONLY[name] not in (benchmarks or DEFAULT):
            raise UsageError(f"{option} is for the benchmark {ONLY[name]}.", f"dlobd micro {ONLY[name]} {option} ...")
    if link and on != NAMESPACES:
        raise UsageError("--link needs --on namespaces.", "dlobd micro --on namespaces --link 1gbit")
    if output is not None:
        output = checked(output, output, TYPES, force)
    names = {field.name for field in fields(Request)}
    given: dict[str, Any] = {name: value for name, value in context.params.items() if name in names and value != ()}
    request = Request(**given)
    above = []
    if run:
        from dlobd.micro import recorded

        found = recorded.exchanges(find_run(run, out).path)
        points = recorded.replay_points(found, request.point_seconds, warm_up_s)
        request, above = replace(request, replay=points), [recorded.histogram(found)]
    with Progress() as progress:
        if on == places.YARN:
            results = places.measure_on_yarn(
                request, _words(context, request), out, external_cluster(hadoop_conf, archive), progress
            )
        else:
            results = places.measure(request, on, link, progress)
    return _print(results, output, as_json, compare, above)


def _given(context: Context) -> dict[str, str]:
    """Return the options of the command line, by the names of their parameters."""
    sources = {param: context.get_parameter_source(param.name or "") for param in context.command.params}
    given = {
        param.name or "": param.opts[0] for param, source in sources.items() if source and source.name == "COMMANDLINE"
    }
    return {name: option for name, option in given.items() if option.startswith("--")}


def _words(context: Context, request: Request) -> list[str]:
    """Return the words of the request, for a job on a cluster; the exchange of a run as the sizes of its messages."""
    words = [*request.benchmarks]
    words += [word for point in request.replay for word in ("--payload", ",".join(map(str, point.payload.sizes)))]
    for name, option in _given(context).items():
        if hasattr(request, name):
            value = context.params[name]
            values = value if isinstance(value, list | tuple) else [value]
            words += [option] if value is True else [word for each in values for word in (option, str(each))]
    return words


def _print(results: Results, output: Path | None, as_json: bool, compare: bool, above: Sequence[Table] = ()) -> int:
    import sys

    from dlobd.cli.output import write
    from dlobd.micro import estimates, places, table
    from dlobd.report import text
    from dlobd.report.terminal.render import show

    if as_json:
        sys.stdout.write(results.text())
    else:
        terminal = console()
        for one in (*above, *table.tables(results)):
            show(one, terminal)
        routes = results.routes()
        for other in routes[1:] if compare else ():
            show(table.comparison(estimates.compare(results, routes[0], other), routes[0], other), terminal)
        print()
        for note in table.notes(results):
            text.line(terminal, note)
    if output is not None and output.suffix == ".html":
        from dlobd.micro.page import page

        write(output, page(results))
    elif output is not None:
        write(output, results.text())
    if results.notes[-1:] == (places.INTERRUPTED,):
        return Interrupted.exit_code
    if any(launch.failed for launch in results.launches):
        return RunFailed.exit_code
    wrong = any(one.bad for launch in results.launches for one in launch.points)
    other_transport = any(one.transport and one.transport.agrees is False for one in results.launches)
    return RunInvalid.exit_code if wrong or other_transport else 0
