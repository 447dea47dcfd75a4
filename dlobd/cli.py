"""The command line: parse, call one function, print, exit code.

Results go to stdout, progress and failures to stderr. An expected failure is one line and its documented exit code
(`dlobd.errors`); of an unexpected one the traceback goes into a file, whose path is in the line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from dlobd import __version__
from dlobd.errors import BundleError, DlobdError, Interrupted, RunFailed, RunInvalid, UsageError
from dlobd.schema import Runnable

if TYPE_CHECKING:
    from dlobd.run.deploy.external import Elsewhere

app = typer.Typer(
    name="dlobd",
    help="Where did the time go? Runs a deep-learning job through HDFS, Spark on YARN and TensorFlow, "
    "and says which layer took how long.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
cluster_app = typer.Typer(help="A cluster that stays, for many runs.", no_args_is_help=True)
app.add_typer(cluster_app, name="cluster")

Out = Annotated[Path, typer.Option("--out", help="Directory of the run bundles.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and the spark-submit line only.")]
Run = Annotated[str, typer.Argument(help="A bundle's path, a run id, or latest.")]

HadoopConf = Annotated[
    Path | None, typer.Option("--hadoop-conf", help="HADOOP_CONF_DIR of a cluster that is not ours, to run there.")
]

RUNS = Path("runs")

EXIT_CODES = {
    "ok": 0,
    "failed": RunFailed.exit_code,
    "invalid": RunInvalid.exit_code,
    "interrupted": Interrupted.exit_code,
}
"""Status of a run to the exit code of `dlobd run`."""


@app.command()
def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[EXPERIMENT]...",
            help="TOML files or names of shipped experiments (softmax-mnist), several are interleaved; "
            "with --job, the script's arguments.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one key; may be repeated.")
    ] = None,
    job: Annotated[
        str | None, typer.Option("--job", metavar="SCRIPT", help="A PySpark script of your own, instead.")
    ] = None,
    out: Out = RUNS,
    dry_run: DryRun = False,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, max=1000, help="Runs of each experiment; the same command goes on.")
    ] = 1,
    order_seed: Annotated[int, typer.Option("--seed", help="Of the random order in which repeats run.")] = 0,
    hadoop_conf: HadoopConf = None,
    by_hand: Annotated[
        bool, typer.Option("--by-hand", help="With --hadoop-conf: prepare all and print the line, for you to submit.")
    ] = False,
    archive: Annotated[
        Path | None, typer.Option("--archive", help="With --hadoop-conf: a conda-pack or venv-pack archive to run in.")
    ] = None,
) -> int:
    """Run an experiment, or with --job SCRIPT [-- ARGUMENTS] a script of your own, and show where its time went. The
    last line is the path of its bundle.

    With several experiments or --repeats: run them all, in a random order within each repeat, and compare them.
    """
    if job is not None:
        from dlobd.experiment import own_job

        every: list[Runnable] = [own_job.from_script(job, words or [], settings or [])]
    else:
        from dlobd.experiment import files as experiments

        every = [experiments.load(name, settings or []) for name in words or ["softmax-mnist"]]
    elsewhere = _elsewhere(hadoop_conf, archive)
    if repeats > 1 or len(every) > 1:
        if elsewhere:
            raise UsageError(
                "--repeats and several experiments run on the embedded cluster.", "leave --hadoop-conf out"
            )
        return _run_series(every, out, repeats, order_seed, dry_run)
    if by_hand and not dry_run:
        return _prepare(every[0], elsewhere, out)
    return _run(every[0], out, dry_run, elsewhere)


@app.command()
def submit(
    line: Annotated[
        list[str] | None, typer.Argument(metavar="-- spark-submit [OPTIONS] SCRIPT.py [ARGUMENTS]", help="Your line.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="What the line cannot say, such as timeout_s."),
    ] = None,
    out: Out = RUNS,
    dry_run: DryRun = False,
) -> int:
    """Run your own spark-submit line on the embedded cluster, unchanged but for the recording, and show where its time
    went."""
    from dlobd.experiment import own_job

    return _run(own_job.from_line(line or [], settings or []), out, dry_run)


def _run(chosen: Runnable, out: Path, dry_run: bool, elsewhere: Elsewhere | None = None) -> int:
    from dlobd.bundle import store
    from dlobd.run import runner
    from dlobd.run.progress import Progress

    if dry_run:
        for step in runner.plan(chosen, elsewhere):
            print(step)
        return 0
    with Progress() as progress:
        bundle = store.Bundle(runner.run(chosen, out, progress, elsewhere))
    return _print_result(bundle)


def _prepare(chosen: Runnable, elsewhere: Elsewhere | None, out: Path) -> int:
    from dlobd.run.by_hand import prepare
    from dlobd.run.progress import Progress

    if elsewhere is None:
        raise UsageError("--by-hand is for clusters that are not ours.", "add --hadoop-conf DIR, or leave it out")
    with Progress() as progress:
        path, line = prepare(chosen, elsewhere, out, progress)
    print(line)
    print(f"bundle: {path}")
    return 0


@app.command()
def collect(
    application_id: Annotated[str, typer.Argument(help="Of a run that was prepared with dlobd run --by-hand.")],
    hadoop_conf: HadoopConf = None,
    out: Out = RUNS,
) -> int:
    """Collect a run that was submitted by hand, and show where its time went. Takes HADOOP_CONF_DIR by default."""
    from dlobd.bundle.store import Bundle
    from dlobd.run.by_hand import collect_application
    from dlobd.run.deploy.external import Elsewhere
    from dlobd.run.progress import Progress

    if hadoop_conf is None and os.environ.get("HADOOP_CONF_DIR"):
        hadoop_conf = Path(os.environ["HADOOP_CONF_DIR"])
    if hadoop_conf is None:
        raise UsageError("No cluster is named.", "add --hadoop-conf DIR, or set HADOOP_CONF_DIR")
    with Progress() as progress:
        path = collect_application(application_id, Elsewhere(hadoop_conf), out, progress)
    return _print_result(Bundle(path))


def _run_series(every: Sequence[Runnable], out: Path, repeats: int, order_seed: int, dry_run: bool) -> int:
    """Runs what is missing of a series; the exit code is that of its worst run."""
    points = {experiment.name: experiment for experiment in every}
    if len(points) < len(every):
        raise UsageError("Two of the experiments have one name.", "give each a name = ... of its own in its file")
    from dlobd.run import series as scheduling
    from dlobd.run.progress import Progress

    series = scheduling.opened(points, order_seed, out)
    if dry_run:
        ended = series.ended()
        for number, cell in enumerate(series.order(repeats), 1):
            there = f"  {ended[cell].run_id}" if cell in ended else ""
            print(f"{number:4}  repeat {cell.repeat}  {cell.point}{there}")
        return 0
    with Progress() as progress:
        series = scheduling.run(series, repeats, progress, progress.keep)
    bundles = {cell: bundle for cell, bundle in series.ended().items() if cell.repeat <= repeats}
    from rich.console import Console

    from dlobd.report import repeats as comparison

    found = {label: [b.read() for cell, b in sorted(bundles.items()) if cell.point == label] for label in points}
    comparison.table(found, Console(highlight=False))
    for cell, bundle in sorted(bundles.items()):
        print(f"{cell.point}, repeat {cell.repeat}: {bundle.path}")
    print(f"series: {series.path}")
    return max(EXIT_CODES[run.status] for each in found.values() for run in each)


@app.command()
def show(run: Run = "latest", out: Out = RUNS, as_json: Json = False) -> None:
    """Show a run: where its time went, how it started and ended."""
    from dlobd.bundle import store

    bundle = store.find(run, out)
    if as_json:
        _print_json(bundle.read_json())
        return
    _print_run(bundle.read())
    try:
        problems = bundle.verify()
    except BundleError as error:
        problems = [error.what]
    for problem in problems:
        print(f"dlobd: warning: {problem}", file=sys.stderr)
    print(f"bundle: {bundle.path}")


@app.command()
def trace(
    run: Run = "latest",
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("trace.json"),
    out: Out = RUNS,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a run's timeline as a trace that Perfetto opens."""
    from dlobd.bundle import store

    bundle = store.find(run, out)
    if output.exists() and not force:
        raise UsageError(f"{output} exists.", "add --force, or choose another -o FILE")
    from dlobd.attribution.lanes.assemble import assemble
    from dlobd.report.perfetto import trace_events

    events = trace_events(assemble(bundle.path))
    try:
        output.write_text(json.dumps(events, separators=(",", ":")) + "\n")
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}.") from error
    print(f"Wrote {output}")


@app.command()
def verify(run: Run = "latest", out: Out = RUNS, as_json: Json = False) -> int:
    """Compute a run's report again from its raw evidence, check its files, and audit its sources against each other."""
    import dataclasses

    from dlobd.attribution.audits import audit
    from dlobd.attribution.importers.evidence import Evidence
    from dlobd.attribution.verification import verify as verified
    from dlobd.bundle import store

    bundle = store.find(run, out)
    answers = verified(bundle)
    audits = audit(Evidence(bundle.path))
    if as_json:
        _print_json({name: [dataclasses.asdict(one) for one in rows] for name, rows in
                     (("answers", answers), ("audits", audits))})  # fmt: skip
    else:
        for answer in answers:
            print(f"{'ok  ' if answer.ok else 'FAIL'}  {answer.question}: {answer.detail}")
        for one in audits:
            said = one.audit if one.verdict == "unknown" else one.figures
            print(f"{one.verdict:7} {said}: {one.detail}")
    wrong = [answer.question for answer in answers if not answer.ok]
    wrong += [one.audit for one in audits if one.verdict == "fail"]
    if wrong:
        raise BundleError(f"{bundle.path} does not hold: {', '.join(wrong)}.")
    return 0


@app.command()
def doctor(
    as_json: Json = False,
    noise: Annotated[bool, typer.Option("--noise", help="Measure this machine's noise too (about 5 s).")] = False,
    runs: Annotated[int, typer.Option("--runs", min=2, help="With --noise: runs a side of a comparison.")] = 5,
    hadoop_conf: HadoopConf = None,
) -> int:
    """Say what this machine can do, what a run listens on, and with --noise what cannot be measured on it; with
    --hadoop-conf also whether that cluster can be reached.

    Exit code 3 if a run would fail for this machine, 4 if only that cluster does not answer."""
    import dataclasses

    from dlobd.run import doctor as doctors
    from dlobd.run.machine_noise import measure

    findings = doctors.examine(hadoop_conf)
    found = measure() if noise else None
    if as_json:
        _print_json({
            "findings": [dataclasses.asdict(finding) for finding in findings],
            "listeners": [dataclasses.asdict(listener) for listener in doctors.listeners(hadoop_conf)],
            "noise": found and dataclasses.asdict(found) | {"sentence": found.sentence(runs)},
        })  # fmt: skip
    else:
        for finding in findings:
            print(
                f"{finding.verdict:7} {finding.part:15} {finding.what}"
                + f"  Next: {finding.remedy}." * bool(finding.remedy)
            )
        print("While a run lasts, others can connect to:")
        for listener in doctors.listeners(hadoop_conf):
            print(f"  {listener.program}: {listener.address}; protected by {listener.protected}")
        if found:
            print(found.sentence(runs))
    return doctors.exit_code(findings)


@app.command()
def selftest(
    full: Annotated[
        bool, typer.Option("--full/--quick", help="Every point with every size (about 20 minutes), or three runs.")
    ] = False,
    overhead: Annotated[
        bool, typer.Option("--overhead", help="Instead: what recording costs, by runs with it on and off.")
    ] = False,
    repeats: Annotated[int, typer.Option("--repeats", min=1, max=1000, help="With --overhead: runs of each kind.")] = 5,
    seed: Annotated[int, typer.Option("--seed", help="With --overhead: of the random order.")] = 0,
    experiment: Annotated[
        str, typer.Option("--experiment", help="With --overhead: a TOML file or the name of a shipped experiment.")
    ] = "softmax-mnist",
    as_json: Json = False,
    out: Out = RUNS / "selftest",
) -> int:
    """Put delays of known size into real runs on the embedded cluster, and see whether the breakdown blames the right
    layer for each."""
    from dlobd.run.progress import Progress

    if overhead:
        from dlobd.experiment import files as experiments
        from dlobd.selftest import overhead as costs
        from dlobd.selftest import step_loop

        with Progress() as progress:
            measured = costs.measure(experiments.load(experiment), repeats, seed, out, progress, progress.keep)
            progress("steps with recording on and off by turns")
            loop = step_loop.measure(seed)
        if as_json:
            _print_json(costs.document(measured, loop, seed))
        else:
            for line in costs.report(measured, loop, seed):
                print(line)
        return 0
    from dlobd.selftest import plans, runs
    from dlobd.selftest import report as report

    with Progress() as progress:
        rans = runs.run(plans.full() if full else plans.quick(), out, progress, progress.keep)
    if as_json:
        _print_json(report.document(rans))
    else:
        from rich.console import Console

        report.tables(rans, Console(highlight=False))
    return 0 if all(ran.ok for ran in rans) else RunInvalid.exit_code


@app.command(name="list")
def list_(
    kind: Annotated[str | None, typer.Argument(help="One axis: experiments, models, datasets, launchers, ...")] = None,
    as_json: Json = False,
) -> None:
    """List what can be chosen, with the reason where something is not available."""
    from dlobd.experiment.files import experiments
    from dlobd.registry import REGISTRIES, unknown

    rows: dict[str, list[tuple[str, str, str | None]]] = {
        "experiments": [(n, title, None) for n, title in experiments()]
    }
    rows |= {name: registry.available() for name, registry in REGISTRIES.items()}
    if kind is not None:
        if kind not in rows:
            raise UsageError(unknown("lists", kind, rows), "dlobd list")
        rows = {kind: rows[kind]}
    if as_json:
        keys = ("name", "title", "unavailable")
        _print_json({name: [dict(zip(keys, row, strict=True)) for row in members] for name, members in rows.items()})
        return
    width = max(len(row[0]) for members in rows.values() for row in members)
    for name, members in rows.items():
        print(name)
        for member, title, reason in members:
            print(f"  {member:{width}}  {title}" + (f"  [not available: {reason}]" if reason else ""))


@app.command()
def clean(
    out: Out = RUNS,
    yes: Annotated[bool, typer.Option("--yes", help="Remove what is cached.")] = False,
    runs: Annotated[bool, typer.Option("--runs", help="With --yes: remove run bundles and self-tests too.")] = False,
) -> None:
    """Show what dlobd keeps on this machine and how large it is; with --yes, remove it."""
    from dlobd.run import clean as cleaning

    entries = cleaning.kept(out)
    if not entries:
        print("nothing is kept")
    for entry in entries:
        goes = yes and (runs or entry.name not in ("runs", cleaning.SELFTEST))
        if goes:
            cleaning.remove(entry)
        where = entry.paths[0] if entry.name != "runs" else out
        print(f"{'removed ' if goes else ''}{entry.size_bytes / 1e6:10.1f} MB  {entry.name:8} {where}  ({entry.title})")


@cluster_app.command()
def up(
    hosts: Annotated[
        str | None,
        typer.Option("--hosts", help="Loopback addresses; a DataNode and a NodeManager on each: 127.0.0.2,127.0.0.3."),
    ] = None,
) -> None:
    """Start HDFS and YARN and leave them running; `dlobd run` then uses them."""
    from dlobd.hadoop.embedded.cluster import EmbeddedCluster
    from dlobd.hadoop.embedded.configuration import default_settings
    from dlobd.run.progress import Progress

    cluster = EmbeddedCluster(default_settings(hosts))
    with Progress() as progress:
        cluster.start(progress, stays=True)
    _print_endpoints(cluster.endpoints)
    cluster.release()


@cluster_app.command()
def status(as_json: Json = False) -> int:
    """Show the daemons of the cluster that stays, their memory and web addresses."""
    import dataclasses

    from dlobd.hadoop.embedded.cluster import EmbeddedCluster
    from dlobd.paths import cluster_dir

    cluster = EmbeddedCluster.attach(cluster_dir(), hold=False)
    now = cluster.status()
    if as_json:
        _print_json(dataclasses.asdict(now))
    else:
        print(f"{now.state}, up {now.up_s:.0f} s, {now.applications} applications" + ", safe mode" * now.safe_mode)
        for daemon in now.daemons:
            state = "ready" if daemon.ready else "not ready" if daemon.alive else "dead"
            figures = f"pid {daemon.pid or '-':>7} {daemon.rss_bytes / 1e6:6.0f} MB"
            print(f"  {daemon.name:16} {state:9} {figures}  {daemon.web_url}")
        _print_endpoints(cluster.endpoints)
    return 0 if now.state == "running" else 4


@cluster_app.command()
def down() -> None:
    """Stop the cluster that stays. What is in HDFS is kept."""
    from dlobd.hadoop.embedded.cluster import EmbeddedCluster
    from dlobd.hadoop.embedded.configuration import ClusterSettings
    from dlobd.paths import cluster_dir
    from dlobd.run.progress import Progress

    try:
        cluster = EmbeddedCluster.attach(cluster_dir())
    except DlobdError as error:
        if error.exit_code != 4:
            raise
        # some of its daemons died, or none runs: end what is left
        cluster = EmbeddedCluster(ClusterSettings(cluster_dir()))
    with Progress() as progress:
        cluster.stop(progress)
    print("cluster is down")


def _elsewhere(hadoop_conf: Path | None, archive: Path | None = None) -> Elsewhere | None:
    from dlobd.run.deploy.external import Elsewhere

    if hadoop_conf is None and archive is not None:
        raise UsageError("--archive is for clusters that are not ours.", "add --hadoop-conf DIR, or leave it out")
    return Elsewhere(hadoop_conf, archive) if hadoop_conf else None


def _print_result(bundle: Any) -> int:
    """The run, why it did not end well, and where it is; returns the exit code."""
    found = bundle.read()
    _print_run(found)
    if found.reason:
        print(f"dlobd: run {found.status}: {found.reason}", file=sys.stderr)
    print(f"trace: dlobd trace {bundle.run_id} -o trace.json")
    print(f"bundle: {bundle.path}")
    return EXIT_CODES[found.status]


def _print_run(found: Any) -> None:
    from rich.console import Console

    from dlobd.report import terminal

    console = Console(highlight=False)
    terminal.breakdown(found, console)
    terminal.anatomy(found, console)


def _print_endpoints(endpoints: Any) -> None:
    print(f"HDFS     {endpoints.fs_uri}")
    for name, url in endpoints.web.items():
        print(f"{name}  {url}")


def _print_json(value: Any) -> None:
    json.dump(value, sys.stdout, indent=1, default=str)
    print()


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(f"dlobd {__version__}")
        raise typer.Exit


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; returns the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        command = typer.main.get_command(app)
        # typer's own way to run it would turn Ctrl-C and a closed stdout into exit codes of its choice
        with command.make_context("dlobd", list(sys.argv[1:] if argv is None else argv)) as context:
            code = command.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except typer.Exit as done:
        return done.exit_code
    except DlobdError as error:
        return _fail(error.line, error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted.", Interrupted.exit_code)
    except BrokenPipeError:
        # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain at exit
        return 0
    except typer.TyperException as error:
        message = error.format_message()  # empty where only help was asked for, and has been printed
        return _fail(f"{message} Next: dlobd --help", UsageError.exit_code) if message else UsageError.exit_code
    except Exception:  # noqa: BLE001  a person gets one line, whatever it was; the traceback is kept
        return _fail(f"unexpected failure: {_last_words()} Its traceback is in {_keep_traceback()}", 1)


def _fail(line: str, code: int) -> int:
    print("dlobd: " + " ".join(line.split()), file=sys.stderr)
    return code


def _interrupt(*_: object) -> NoReturn:
    # once: whoever sends it again must not break off the stopping of daemons
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _last_words() -> str:
    kind, error, _ = sys.exc_info()
    return f"{kind.__name__ if kind else ''}: {str(error)[:200]}."


def _keep_traceback() -> Path:
    from dlobd.bundle.redaction import redact
    from dlobd.paths import cache_dir

    text = redact(traceback.format_exc().encode())
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.txt"
    for folder in (cache_dir() / "crashes", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(text)
            return folder / name
        except OSError:
            continue
    return Path("nowhere: no directory could be written")
