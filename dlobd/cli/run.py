"""`dlobd run`: runs an experiment, several experiments, or the user's own script."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlobd.cli import options
from dlobd.cli.printing import print_note, print_result, print_series
from dlobd.errors import UsageError
from dlobd.schema import Runnable

if TYPE_CHECKING:
    from dlobd.experiment.series import Series
    from dlobd.experiment.spark_conf import Options
    from dlobd.run.place.external import ExternalCluster


def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[EXPERIMENT]...",
            help="TOML files or names of built-in experiments (default softmax-mnist); several experiments are "
            "interleaved. Or your own script, as with --job, then its arguments.",
            autocompletion=options.propose_built_in,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a key of `dlobd list settings`; repeatable.",
            autocompletion=options.propose_settings,
        ),
    ] = None,
    job: Annotated[
        str | None, typer.Option("--job", metavar="SCRIPT", help="Run your own PySpark script instead.")
    ] = None,
    conf: options.Conf = None,
    queue: options.Queue = "",
    out: options.Out = options.RUNS,
    dry_run: options.DryRun = False,
    repeats: options.Repeats = 1,
    order_seed: options.OrderSeed = 0,
    hadoop_conf: options.HadoopConf = None,
    by_hand: Annotated[
        bool,
        typer.Option("--by-hand", help="With --hadoop-conf: prepare the run and print the command for you to submit."),
    ] = False,
    archive: options.Archive = None,
    packages: options.With = None,
    requirements: options.Requirements = None,
    python: options.JobPython = None,
) -> int:
    """Run an experiment or your own script, and show its wall time by layer.

    For your own script, use SCRIPT.py or --job SCRIPT.py, then [-- ARGUMENTS]. The last line of the output is the
    path of the run's bundle.

    Several experiments run in random order within each repeat, and are then compared.
    """
    spark = spark_options(conf, queue, hadoop_conf)
    if job is None and words and words[0].endswith(".py"):
        job, *words = words
    if job is not None:
        from dlobd.experiment import own_job

        chosen = own_job.fields_of(python, packages or (), requirements)
        own = own_job.from_script(job, words or [], settings or [], print_note, chosen, spark.words)
        python = own.python
        every: list[Runnable] = [own]
    elif python or packages or requirements:
        raise UsageError("--python, --with and --requirements are for your own script.", "add --job SCRIPT")
    else:
        from dlobd.experiment import files as experiments

        def admit(experiment: Runnable) -> None:
            from dlobd.run import runner

            runner.check_room(experiment, external_cluster(hadoop_conf, archive))

        names = words or ["softmax-mnist"]
        every = [experiments.load(name, settings or [], print_note, spark, admit) for name in names]
        note_ignored_shell(every)
    cluster = external_cluster(hadoop_conf, archive, python or "")
    if by_hand and (repeats > 1 or len(every) > 1):
        raise UsageError("--by-hand prepares a single run.", "omit --repeats, and name one experiment")
    if by_hand and cluster is None:
        raise UsageError("--by-hand needs an external cluster.", "add --hadoop-conf DIR, or omit --by-hand")
    if repeats > 1 or len(every) > 1:
        points = {experiment.name: experiment for experiment in every}
        if len(points) < len(every):
            raise UsageError(
                "Two of the experiments have the same name.", "set another name = ... in one of their files"
            )
        from dlobd.run import series_runner

        return run_series(series_runner.opened(points, order_seed, out, cluster), repeats, dry_run, cluster)
    if by_hand and cluster and not dry_run:
        return _prepare(every[0], cluster, out)
    return run_one(every[0], out, dry_run, cluster)


def run_one(chosen: Runnable, out: Path, dry_run: bool, cluster: ExternalCluster | None = None) -> int:
    """Execute a run, or print its plan with `dry_run`; return the exit code."""
    from dlobd.bundle import store
    from dlobd.run import runner
    from dlobd.run.observer import RunObserver
    from dlobd.run.progress import Progress

    class Quoting(RunObserver):
        """Observer that shows the output of the user's script."""

        def output(self, line: str) -> None:
            progress.quote(line)

    if dry_run:
        for step in runner.plan(chosen, cluster):
            print(step)
        return 0
    with Progress() as progress:
        bundle = store.Bundle(runner.run(chosen, out, progress, cluster, Quoting()))
    return print_result(bundle)


def _prepare(chosen: Runnable, cluster: ExternalCluster, out: Path) -> int:
    from dlobd.run.manual_submission import prepare
    from dlobd.run.progress import Progress

    with Progress() as progress:
        path, line = prepare(chosen, cluster, out, progress)
    print(line)
    collect = ("dlobd", "collect", path.name, "--hadoop-conf", str(cluster.conf_dir), "--out", str(out))
    print(f"then: {shlex.join(collect)}")
    print(f"bundle: {path}")
    return 0


def run_series(series: Series, repeats: int, dry_run: bool, cluster: ExternalCluster | None) -> int:
    """Execute the missing runs of a series; return the highest exit code of its runs.

    Args:
        dry_run: only print the order of all runs, with the IDs of existing runs.
    """
    if dry_run:
        ended = series.ended()
        for number, cell in enumerate(series.order(repeats), 1):
            there = f"  {ended[cell].run_id}" if cell in ended else ""
            print(f"{number:4}  repeat {cell.repeat}  {cell.point}{there}")
        return 0
    from dlobd.run import series_runner
    from dlobd.run.progress import Progress

    with Progress() as progress:
        series = series_runner.run(series, repeats, progress, progress.keep, cluster)
    bundles = {cell: bundle for cell, bundle in sorted(series.ended().items()) if cell.repeat <= repeats}
    if series.scaling:
        from dlobd.compare.sweep_frame import write_csv

        print(f"frame: {write_csv(series)}")
    return print_series(series, bundles)


def spark_options(conf: Sequence[str] | None, queue: str, hadoop_conf: Path | None) -> Options:
    """Return --conf and --queue; on an external cluster, the queue of the configuration file is the default."""
    from dlobd.experiment import user_config
    from dlobd.experiment.spark_conf import Options

    return Options(tuple(conf or ()), queue, user_config.read().queue if hadoop_conf else "")


def note_ignored_shell(every: Iterable[Runnable]) -> None:
    """Print the settings of Spark in the shell that dlobd's own jobs do not use."""
    from dlobd.experiment.spark_submit_line import ignored_shell

    if any(one.scheduler != "none" for one in every):
        for line in ignored_shell(os.environ):
            print_note(line)


def external_cluster(hadoop_conf: Path | None, archive: Path | None, python: str = "") -> ExternalCluster | None:
    """Return the external cluster that the options name; None if they name no cluster."""
    from dlobd.run.place.external import ExternalCluster

    if hadoop_conf is None and archive is not None:
        raise UsageError("--archive needs an external cluster.", "add --hadoop-conf DIR, or omit --archive")
    if archive is not None and python:
        raise UsageError("--archive and --python both name the nodes' Python.", "omit one of them")
    return ExternalCluster(hadoop_conf, archive, python) if hadoop_conf else None
