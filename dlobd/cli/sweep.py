"""`dlobd sweep`: runs the experiments of a sweep file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from dlobd.cli.options import RUNS, Archive, Conf, DryRun, HadoopConf, OrderSeed, Out, Queue, Repeats, propose_built_in
from dlobd.cli.printing import print_note
from dlobd.cli.run import external_cluster, note_ignored_shell, run_series, spark_options
from dlobd.errors import UsageError

if TYPE_CHECKING:
    from dlobd.experiment.sweeps import Sweep


def sweep(
    file: Annotated[
        str,
        typer.Argument(metavar="SWEEP", help="TOML file or name of a built-in sweep.", autocompletion=propose_built_in),
    ],
    conf: Conf = None,
    queue: Queue = "",
    repeats: Repeats = 1,
    order_seed: OrderSeed = 0,
    out: Out = RUNS,
    hadoop_conf: HadoopConf = None,
    archive: Archive = None,
    dry_run: DryRun = False,
) -> int:
    """Run every combination of the values in a sweep file, and compare the runs.

    All runs use one cluster, in random order within each repeat. The same command resumes an interrupted sweep.
    """
    from dlobd.experiment import sweeps
    from dlobd.run import series_runner

    wanted = sweeps.load(file, print_note, spark_options(conf, queue, hadoop_conf))
    note_ignored_shell(wanted.points.values())
    cluster = external_cluster(hadoop_conf, archive)
    if cluster:
        wanted = _possible_on_cluster(wanted)
    _print_impossible(wanted)
    series = series_runner.opened(wanted.points, order_seed, out, cluster, wanted.axes, wanted.scaling)
    return run_series(series, repeats, dry_run, cluster)


def _possible_on_cluster(wanted: Sweep) -> Sweep:
    from dlobd.run.place import external

    points, impossible = {}, dict(wanted.impossible)
    for label, point in wanted.points.items():
        try:
            external.check(point)
            points[label] = point
        except UsageError as error:
            impossible[label] = error.line
    return replace(wanted, points=points, impossible=impossible)


def _print_impossible(wanted: Sweep) -> None:
    """Print excluded and impossible combinations. Raises UsageError unless impossible ones may be skipped."""
    for label in wanted.excluded:
        print_note(f"excluded: {label}")
    for label, why in wanted.impossible.items():
        print_note(f"{'skipped' if wanted.skip_impossible else 'impossible'}: {label}: {why}")
    total = len(wanted.points) + len(wanted.impossible)
    if wanted.impossible and not (wanted.skip_impossible and wanted.points):
        raise UsageError(
            f"{len(wanted.impossible)} of {total} combinations of the axes are impossible.",
            "change the axes, add an [[exclude]], or set fit_train_samples or skip_impossible = true in [sweep]",
        )
