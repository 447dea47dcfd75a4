"""The pages of the commands, `docs/commands/`: one a command, and an index. `docs/generate.py` writes them.

Usage, arguments, options and defaults come from the command line itself. What a command line cannot say of itself, when
it is used and what its exit codes mean there, stands in `COMMANDS` below. A command without an entry there, or an entry
without its command, is an error; an entry of `LATER` may wait for its command.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer

from dlobd.cli.main import app

MADE = """\
<!-- Made by docs/command_pages.py from the command line and its table of examples; run docs/generate.py. -->"""

COMMON = (0, 1, 2, 130)
"""Exit codes of every command."""

PURPOSES = {
    "run": "Run something",
    "look": "Look at a run",
    "compare": "Compare runs",
    "machine": "This machine and its cluster",
}
"""Headings of the index, in its order."""


class Page(NamedTuple):
    """What is written by hand for a command.

    Args:
        purpose: a key of `PURPOSES`.
        examples: command lines that exist, each with what it does.
        see: pages of docs/ where to read on; of them `commands/...` too.
        codes: exit codes besides `COMMON`; those with a meaning of their own say it, else it is that of the README.
    """

    purpose: str
    examples: tuple[tuple[str, str], ...]
    see: tuple[str, ...] = ()
    codes: dict[int, str] = {}  # noqa: RUF012  never changed


_DIFFER = "the command line is wrong, the runs' environments differ, or there is nothing to compare"
_RUN_CODES = {3: "", 4: "", 5: "", 6: "", 7: "", 8: ""}

COMMANDS: dict[str, Page] = {
    "run": Page(
        "run",
        (
            ("dlobd run", "the main job: `softmax-mnist`, two workers, on an embedded cluster"),
            ("dlobd run softmax-mnist-quick --set workers=1", "a built-in experiment with another setting"),
            ("dlobd run softmax-mnist --dry-run", "the plan and the spark-submit command; starts nothing"),
            ("dlobd run A.toml B.toml --repeats 8", "your own experiments, interleaved and compared"),
            ("dlobd run --job my_script.py -- --epochs 3", "your own script with its arguments"),
            ("dlobd run softmax-mnist --hadoop-conf DIR", "on an external cluster"),
            ("dlobd run softmax-mnist --hadoop-conf DIR --by-hand", "prepares it, and prints what you submit"),
        ),
        ("concepts.md", "models-data-knobs.md", "your-own-job.md", "comparing.md", "cluster.md", "commands/show.md"),
        _RUN_CODES,
    ),
    "sweep": Page(
        "run",
        (
            ("dlobd list sweeps", "the built-in ones"),
            ("dlobd sweep scaling-quick --dry-run", "every run in its order; starts nothing"),
            ("dlobd sweep scaling-quick --repeats 3", "runs it; the same command resumes it"),
            ("dlobd sweep MY-SWEEP.toml --repeats 3 --out runs", "your own"),
        ),
        ("comparing.md", "commands/compare.md"),
        _RUN_CODES,
    ),
    "submit": Page(
        "run",
        (
            (
                "dlobd submit -- spark-submit --num-executors 3 --executor-memory 1g my_script.py --epochs 3",
                "your own command, recorded",
            ),
            ("dlobd submit --dry-run -- spark-submit my_script.py", "the command that would run; starts nothing"),
            ("dlobd submit --set timeout_s=3600 -- spark-submit my_script.py", "with a setting of dlobd's own"),
        ),
        ("your-own-job.md", "cluster.md", "commands/run.md"),
        _RUN_CODES,
    ),
    "collect": Page(
        "run",
        (
            ("dlobd collect --hadoop-conf DIR", "the latest run that was prepared and not yet collected"),
            ("dlobd collect application_1795263978565_0001 --hadoop-conf DIR", "by YARN's id, also on another machine"),
        ),
        ("cluster.md", "commands/run.md"),
        {4: "", 5: "", 6: "", 7: "", 8: ""},
    ),
    "show": Page(
        "look",
        (
            ("dlobd show", "the most recent run"),
            ("dlobd show 20261125T0114", "the run whose id begins so"),
            ("dlobd show runs/softmax-mnist/20261125T011400Z-adba", "a bundle, wherever it is"),
            ("dlobd list views", "the names for the next line"),
            ("dlobd show --view training --view resources", "two views only"),
            ("dlobd show --json", "run.json, for other programs"),
            ("dlobd show --price-per-hour 3.20", "and what the run cost, if the cluster costs 3.20 an hour"),
        ),
        ("quickstart.md", "findings.md", "metrics.md", "layers.md", "concepts.md"),
        {7: ""},
    ),
    "report": Page(
        "look",
        (
            ("dlobd report", "the most recent run, as report.html"),
            ("dlobd report 20261125T0114 -o run.html --force", "another run, over the same file"),
            ("dlobd report RUN1 RUN2 -o both.html", "several runs side by side"),
        ),
        ("concepts.md", "findings.md", "comparing.md", "commands/show.md"),
        {7: ""},
    ),
    "trace": Page(
        "look",
        (
            ("dlobd trace -o trace.json", "the most recent run; open the file in Perfetto"),
            ("dlobd trace 20261125T0114 -o trace.json --force", "another run, over the same file"),
        ),
        ("file-format.md", "commands/export.md"),
        {7: ""},
    ),
    "export": Page(
        "look",
        (
            ("dlobd export --format spans", "the most recent run's spans, as spans.csv"),
            ("dlobd export --format spans -o spans.parquet", "as Parquet"),
            ("dlobd export 20261125T0114 --format steps -o steps.csv", "the training steps of another run"),
            ("dlobd export --format otlp -o otlp.json", "the timeline for OpenTelemetry's collectors and viewers"),
            ("dlobd export --format mlperf-log -o mlperf.log", "epochs and accuracies, if they were evaluated"),
        ),
        ("file-format.md", "metrics.md", "commands/trace.md"),
        {7: ""},
    ),
    "verify": Page(
        "look",
        (
            ("dlobd verify", "the most recent run"),
            ("dlobd verify runs/softmax-mnist/20261125T011400Z-adba", "a bundle that came from elsewhere"),
            ("dlobd verify latest --json", "every answer and check, for other programs"),
        ),
        ("trust.md", "file-format.md"),
        {7: "the bundle is missing, or something in it differs from what follows from its evidence"},
    ),
    "compare": Page(
        "compare",
        (
            ("dlobd compare runs/series-KEY.json", "the points of a series or sweep with its first one"),
            ("dlobd compare runs/A runs/B --margin 3%", "all bundles of one directory with those of another"),
            ("dlobd compare runs/A runs/B --allow order", "although one side was run after the other"),
        ),
        ("comparing.md", "commands/check.md", "commands/run.md"),
        {2: _DIFFER, 7: ""},
    ),
    "check": Page(
        "compare",
        (
            (
                "dlobd check runs/series-NEW.json --against runs/series-OLD.json --max-regression 5%",
                "a gate for CI",
            ),
            (
                "dlobd check runs/new/softmax-mnist-quick --against runs/baseline/softmax-mnist-quick --json",
                "two directories of bundles, as one document",
            ),
        ),
        ("comparing.md", "commands/compare.md"),
        {2: _DIFFER, 7: "", 9: "", 10: ""},
    ),
    "selftest": Page(
        "machine",
        (
            ("dlobd selftest", "five runs with known delays"),
            ("dlobd selftest --overhead --repeats 6", "what recording costs"),
        ),
        ("selftest.md", "methodology.md"),
        {**_RUN_CODES, 6: "a delay was not found in the layer that it was injected into"},
    ),
    "doctor": Page(
        "machine",
        (
            ("dlobd doctor", "before the first run"),
            ("dlobd doctor --noise", "and how much equal work varies here"),
            ("dlobd doctor --hadoop-conf DIR", "and whether that cluster can be reached"),
            ("dlobd doctor --require rdma", "fails without an RDMA device"),
        ),
        ("cluster.md", "channels.md", "commands/run.md"),
        {3: "a run would fail because of this machine, or a required channel is not there", 4: ""},
    ),
    "list": Page(
        "machine",
        (
            ("dlobd list", "everything"),
            ("dlobd list experiments", "what `dlobd run` takes by name"),
            ("dlobd list launchers --json", "with the reason if one is not available here"),
        ),
        ("concepts.md", "models-data-knobs.md", "channels.md", "extending.md"),
    ),
    "clean": Page(
        "machine",
        (
            ("dlobd clean", "what is kept, where, and its size; removes nothing"),
            ("dlobd clean --yes", "removes the caches"),
            ("dlobd clean --yes --runs", "and the bundles and self-tests in runs/"),
        ),
        ("cluster.md",),
        {3: "something cannot be removed", 8: "a cluster is running"},
    ),
    "cluster up": Page(
        "machine",
        (
            ("dlobd cluster up", "two DataNodes and two NodeManagers on 127.0.0.1"),
            ("dlobd cluster up --hosts 127.0.0.2,127.0.0.3", "one of each on two addresses"),
            ("dlobd cluster up --conf dfs.replication=2", "with a setting of Hadoop's"),
        ),
        ("cluster.md", "commands/cluster-status.md", "commands/cluster-down.md"),
        {3: "", 4: "", 8: ""},
    ),
    "cluster status": Page(
        "machine",
        (
            ("dlobd cluster status", "daemons, memory, web addresses"),
            ("dlobd cluster status --json", "the same for other programs"),
        ),
        ("cluster.md", "commands/cluster-up.md"),
        {4: "no cluster is up, or one of its daemons is not ready", 8: ""},
    ),
    "cluster down": Page(
        "machine",
        (("dlobd cluster down", "stops every daemon; what is in HDFS stays"),),
        ("cluster.md", "commands/cluster-up.md"),
        {4: "", 8: ""},
    ),
    "data list": Page(
        "machine",
        (
            ("dlobd data list", "what is on this machine, and where"),
            ("dlobd data list --json", "the same for other programs"),
        ),
        ("models-data-knobs.md", "commands/data-fetch.md"),
    ),
    "data fetch": Page(
        "machine",
        (
            ("dlobd data fetch cifar10", "from its authors' site into the cache"),
            ("dlobd data fetch cifar10 --from DIR", "from a directory with the archive, without network"),
            ("dlobd data fetch cifar10 --to DIR", "into DIR/cifar-10; use it with DLOBD_DATA=DIR"),
        ),
        ("models-data-knobs.md", "commands/data-list.md"),
        {3: "the archive cannot be had or stored, or is not the published one"},
    ),
}
"""Words after `dlobd` to what is written by hand."""

LATER: dict[str, Page] = {}
"""As `COMMANDS`; an entry counts once its command exists."""

PAGE = """\
# {title}

{made}

{what}

    {usage}
{parameters}
## Exit codes

{codes}

## Examples

```
{examples}
```

## See also

{see}
"""

INDEX = """\
# Commands

{made}

`dlobd` is `.venv/bin/dlobd` in a checkout. RUN is the path of a bundle, a run's id, a unique prefix of the id, or
`latest`, the default. Results go to stdout, progress and errors to stderr. An expected failure is one line: what
failed, why, and what to do next. The [README](../../README.md#commands) has all exit codes and environment variables.
{tables}"""


def pages(docs: Path) -> dict[str, str]:
    """Name below `docs` to content: a page for each command, and the index.

    Raises:
        ValueError: a command has no entry, or an entry no command.
    """
    commands = dict(leaves(typer.main.get_command(app)))
    entries = {**COMMANDS, **{name: page for name, page in LATER.items() if name in commands}}
    for name in commands.keys() - entries.keys():
        raise ValueError(f"docs/command_pages.py: COMMANDS has no entry for `dlobd {name}`. Next: write one")
    for name in entries.keys() - commands.keys():
        raise ValueError(f"docs/command_pages.py: there is no command `dlobd {name}`. Next: remove its entry")
    meanings = _meanings((docs.parent / "README.md").read_text())
    made = {f"commands/{file_name(name)}": _page(name, commands[name], entries[name], meanings) for name in entries}
    return made | {"commands/index.md": _index(commands, entries)}


def file_name(name: str) -> str:
    """Of a command's page: `cluster up` has cluster-up.md."""
    return f"{name.replace(' ', '-')}.md"


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """(words after dlobd, command) of each command that does something itself, in the order of the command line."""
    for name, inner in getattr(command, "commands", {}).items():
        if hasattr(inner, "commands"):
            yield from leaves(inner, (*words, name))
        elif not inner.hidden:
            yield " ".join((*words, name)), inner


def _page(name: str, command: Any, page: Page, meanings: dict[int, str]) -> str:
    shown = [parameter for parameter in command.params if not parameter.hidden]
    arguments = [parameter for parameter in shown if parameter.param_type_name == "argument"]
    options = [parameter for parameter in shown if parameter.param_type_name == "option"]
    tables = [
        _table(
            ("Argument", "Default", "Meaning"), [(f"`{_name(one)}`", _default(one), _meaning(one)) for one in arguments]
        ),
        _table(("Option", "Default", "Meaning"), [(_spelled(one), _default(one), _meaning(one)) for one in options]),
    ]
    told = {code: page.codes.get(code) or meanings[code] for code in sorted({*COMMON, *page.codes})}
    width = max(len(line) for line, _ in page.examples)
    aligned = width if width <= 60 else 0
    return PAGE.format(
        title=f"dlobd {name}",
        made=MADE,
        what=_prose(command.help),
        usage=" ".join([f"dlobd {name}", *(["[OPTIONS]"] if options else []), *map(_usage, arguments)]),
        parameters="".join(f"\n{table}\n" for table in tables if table),
        codes=_table(("Exit code", "Meaning"), [(str(code), what) for code, what in told.items()]),
        examples="\n".join(_example(line, what, aligned) for line, what in page.examples),
        see=" · ".join(map(_see, page.see)),
    )


def _example(line: str, what: str, width: int) -> str:
    what = what.replace("`", "")
    return f"{line:{width}}   # {what}" if width else f"{line}\n    # {what}"


def _index(commands: dict[str, Any], entries: dict[str, Page]) -> str:
    tables = []
    for purpose, title in PURPOSES.items():
        rows = [
            (f"[`dlobd {name}`]({file_name(name)})", _inline(" ".join(command.help.split("\n\n")[0].split())))
            for name, command in commands.items()
            if entries[name].purpose == purpose
        ]
        tables.append(f"\n## {title}\n\n{_table(('Command', 'What it does'), rows)}\n")
    return INDEX.format(made=MADE, tables="".join(tables))


def _meanings(readme: str) -> dict[int, str]:
    """The README's table of exit codes, which a test compares with the code."""
    return {int(code): what for code, what in re.findall(r"^\| (\d+) \| (.*) \|$", readme, re.MULTILINE)}


def _usage(argument: Any) -> str:
    name = _name(argument)
    return name if argument.required or name.startswith(("[", "-")) else f"[{name}]"


def _name(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _spelled(option: Any) -> str:
    """As it is typed, with what its value is."""
    value = "" if option.is_flag else f" {option.metavar or _kind(option)}"
    return " or ".join(f"`{spelling}{value}`" for spelling in (*option.opts, *option.secondary_opts))


def _kind(option: Any) -> str:
    annotation = option.type_descriptor.annotation
    return {int: "N", float: "X", Path: "PATH"}.get(annotation, "TEXT" if annotation is not Path | None else "PATH")


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if getattr(parameter, "is_flag", False):
        told = parameter.opts[0] if parameter.default else (*parameter.secondary_opts, "")[0]
        return f"`{told}`" if told else "off"
    told = f"`{parameter.default}`" if parameter.default not in (None, "", ()) else "-"
    return f"`${parameter.envvar}`, else none" if parameter.envvar and told == "-" else told


def _meaning(parameter: Any) -> str:
    low, high = getattr(parameter, "min", None), getattr(parameter, "max", None)
    limits = f" From {low} to {high}." if high is not None else f" At least {low}." if low is not None else ""
    return _inline(f"{parameter.help or ''}{limits}")


def _prose(text: str) -> str:
    """A docstring's paragraphs, as Markdown."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")]
    return "\n\n".join(textwrap.fill(_inline(one), 120, break_on_hyphens=False) for one in paragraphs)


def _inline(text: str) -> str:
    """Plain text as Markdown: options as code, pages of docs/ as links. What is code already stays."""
    parts = re.split(r"(`[^`]*`)", text)
    for place in range(0, len(parts), 2):
        plain = parts[place].replace("<", "\\<").replace("*", "\\*")
        plain = re.sub(r"(?<![\w-])(--[a-z][\w-]*)", r"`\1`", plain)
        parts[place] = re.sub(r"docs/([\w-]+)\.md", r"[\1](../\1.md)", plain)
    return "".join(parts)


def _see(target: str) -> str:
    if target.startswith("commands/"):
        return f"[dlobd {Path(target).stem.replace('-', ' ')}]({Path(target).name})"
    return f"[{Path(target).stem}](../{target})"


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(header), "|" + "---|" * len(header), *map(line, rows)]) if rows else ""
