"""Views of `dlobd show` other than the overview: tables of `dlobd.report.tables` with sentences."""

from rich.console import Console

from dlobd.layers import title
from dlobd.record.run import Run
from dlobd.report import sentences, tables, text
from dlobd.report.first_screen import WORDS, first_screen, layer_words
from dlobd.report.summary import machine_of, not_sound, settings, slowest_rank
from dlobd.report.terminal.overview import print_bar
from dlobd.report.terminal.render import show

MOST_ROWS = 12
"""Maximum rows of the tables of stages and imports. The page has more."""


def breakdown(run: Run, console: Console) -> None:
    """Print the verdict, the wall time by layer, and the uncertainty of the breakdown."""
    screen = first_screen(run)
    text.line(console, f"run {run.run_id}  {run.experiment}  status {run.status}", "bold")
    text.line(console, settings(run))
    text.line(console, screen.headline, "bold")
    if screen.failure:
        text.line(console, screen.failure.reason, "bold")
    if evidence := sentences.evidence(run):
        text.line(console, evidence)
    for warning in not_sound(run):
        text.line(console, f"warning: {warning}", "yellow")
    for line in sentences.circumstances(run):
        text.line(console, line)
    if run.wall_ns is None:
        text.line(console, sentences.total(run))
        return
    print_bar("", screen.layers, console)
    show(tables.layers(run), console)
    text.line(console, sentences.total(run))
    show(tables.evidence(run), console)
    if run.core_waits is None:
        text.line(console, "\nThread state: unknown, because no process was sampled.")
    for table in (
        tables.core_waits(run),
        tables.causes(run),
        tables.largest(run),
        tables.hidden(run),
        tables.not_measured(run),
        tables.hdfs(run),
        tables.lost_work(run),
        tables.ranks(run),
    ):
        show(table, console)
    for line in dict.fromkeys((*map(machine_of, run.ranks), slowest_rank(run))):
        if line:
            text.line(console, line)
    _transport(run, console)
    for table in (tables.exchange(run), tables.corrections(run), tables.metric_values(run), tables.setup(run)):
        show(table, console)
    if run.overhead:
        text.line(console, f"\n{sentences.recording(run.overhead)}")
    if run.resources:
        text.line(console, sentences.resource_line(run.resources))


def findings(run: Run, console: Console) -> None:
    """Print findings above noise with evidence and remedy, and findings below noise in short."""
    if run.status != "ok":
        text.line(console, f"\nNo findings: the run is {run.status}.")
        return
    text.heading(console, sentences.FINDINGS_TITLE)
    above = [row for row in run.findings if row.above_noise]
    if not above:
        text.line(console, sentences.no_finding(run))
    for number, row in enumerate(above, 1):
        text.line(console, f"{number}. {sentences.finding(row)}", "bold")
        for evidence in row.evidence:
            text.line(console, f"   {evidence}")
        text.line(console, f"   Remedy: {row.remedy}")
        text.line(console, f"   Unless: {row.unless}")
        text.line(console, f"   Code: {row.finding}")
    if below := [row for row in run.findings if not row.above_noise]:
        text.heading(console, "Below noise")
        for row in below:  # no table, whose narrow columns would break names of properties
            text.line(console, f"{title(row.layer)}: {sentences.finding(row)}")
            text.line(console, f"   Remedy: {row.remedy}")
        text.line(console, f"Noise: {sentences.noise(run)}.")


def training(run: Run, console: Console) -> None:
    """Print the known figures of throughput, epochs and time to accuracy."""
    show(tables.throughput(run), console)
    if sum(epoch.test_accuracy is not None for epoch in run.epochs) > 1:
        show(tables.epochs(run), console)
    for line in sentences.training(run):
        text.line(console, f"\n{line}")


def anatomy(run: Run, console: Console) -> None:
    """Print start-up and teardown events in chronological order, and Python imports."""
    for name, events in (("Start-up", run.startup), ("Teardown", run.teardown)):
        show(tables.events(run, name, events), console)
        if not events:
            text.line(console, f"\n{name}: no event was recorded.")
    show(tables.imports(run), console, most=MOST_ROWS)
    if not run.imports:
        text.line(console, "\nImports: no import of 1 ms or more was recorded.")


def resources(run: Run, console: Console) -> None:
    """Print resource use by layer and by role, and Spark's task metrics."""
    if run.resources is None:
        text.line(console, "\nResource use: not measured.")
    else:
        show(tables.layer_use(run), console)
        show(tables.role_use(run), console)
        for line in sentences.resource_lines(run.resources):
            text.line(console, line)
    if run.core_waits:
        show(tables.thread_use(run), console)
        for line in sentences.pressure(run.core_waits):
            text.line(console, line)
    if run.spark_metrics is None:
        text.line(console, "\nSpark's task metrics: none, because Spark logged no finished task.")
        return
    show(tables.spark_metrics(run), console)
    show(tables.stages(run), console, most=MOST_ROWS)
    show(tables.python_work(run), console, most=MOST_ROWS)


def words(run: Run, console: Console) -> None:
    """Print the meanings of the words of the overview."""
    for word, meaning in (WORDS | layer_words()).items():
        text.line(console, f"{word}: {meaning}.")


def _transport(run: Run, console: Console) -> None:
    if run.transport:
        text.heading(console, "Transport")
    for plane in run.transport or ():
        text.line(console, f"{plane.plane}: {sentences.transport(plane)}")
        for line in plane.evidence:
            text.line(console, f"   {line}")
