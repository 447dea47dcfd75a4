"""`dlobd selftest`: runs the self-test or the overhead measurement, and prints the result."""

from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Json, Out
from dlobd.cli.printing import console, print_json
from dlobd.errors import RunInvalid


def selftest(
    full: Annotated[
        bool,
        typer.Option(
            "--full/--quick", help="Run all points with all sizes and controls (about 80 minutes), or five runs only."
        ),
    ] = False,
    overhead: Annotated[
        bool, typer.Option("--overhead", help="Measure the recording overhead instead, with recording on and off.")
    ] = False,
    repeats: Annotated[
        int,
        typer.Option(
            "--repeats",
            min=1,
            max=1000,
            help="With --overhead: number of runs with recording on, and of runs with recording off.",
        ),
    ] = 6,
    seed: Annotated[int, typer.Option("--seed", help="With --overhead: seed for the run order.")] = 0,
    experiment: Annotated[
        str, typer.Option("--experiment", help="With --overhead: a TOML file or the name of a built-in experiment.")
    ] = "softmax-mnist",
    as_json: Json = False,
    out: Out = RUNS / "selftest",
) -> int:
    """Check the breakdown by injecting known delays into real runs.

    The runs use the embedded cluster. Each delay must appear in the layer into which it was injected."""
    from dlobd.run.progress import Progress

    if overhead:
        from dlobd.experiment import files as experiments
        from dlobd.selftest import overhead as costs
        from dlobd.selftest import step_loop

        with Progress() as progress:
            measured = costs.measure(experiments.load(experiment), repeats, seed, out, progress, progress.keep)
            progress("steps with recording on and off, alternating")
            loops = step_loop.processes(seed)
        if as_json:
            print_json(costs.document(measured, loops, seed))
        else:
            for line in costs.report(measured, loops):
                print(line)
        return 0
    from dlobd.faults import slow_disk
    from dlobd.paths import cache_dir
    from dlobd.selftest import report, runs

    with Progress() as progress:
        obstacle = slow_disk.obstacle(cache_dir()) if full else ""
        if obstacle:
            progress.keep(f"no slow disk: {obstacle}")
        selected = runs.full(slow_disk=not obstacle) if full else runs.quick()
        rans = runs.run(selected, out, progress, progress.keep)
    if as_json:
        print_json(report.document(rans))
    else:
        report.tables(rans, console())
    return 0 if all(ran.ok for ran in rans) else RunInvalid.exit_code
