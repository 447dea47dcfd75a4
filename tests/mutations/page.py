"""docs/verify.md: what `dlobd verify` asks, and the table of mutations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.mutations.judging import Judgement

PATH = Path(__file__).parents[2] / "docs" / "verify.md"

AUTHORS = {
    "sighted": "By who wrote the checks",
    "blind": "By somebody who had not seen them",
    "third": "By somebody else who had not seen them, later",
    "fourth": "By one more who had not seen them, later still",
}

PAGE = """\
# Verify

<!-- Made by `python -m tests.mutations`; change tests/mutations, not this page. -->

`dlobd verify [RUN]` asks whether a bundle may be believed. It needs no cluster, and nothing but the bundle.

| Question | Finds |
|---|---|
| files are as sealed | any change, unless the bundle was sealed again |
| hash is as noted (`--against HASH`) | any change, whoever sealed it |
| configuration, key and job agree | settings that the job was not told |
| the evidence says the same of versions, machine, command and settings | what run.json says that only the client \
knew, where a log, the event log, the sampler or a span file tells it again |
| report follows from the evidence | a figure of run.json that is not computed from the evidence |
| [audits](audits.md) | sources in the same bundle that contradict each other |

Exit code 7 if one of them fails. Besides, a run whose sources contradict each other, or that
[lacks one](missing-evidence.md) on which its breakdown depends, is `invalid` by its own report.

## Hashes are unkeyed

`hashes` has the sha256 of each file. Whoever changes a file can write them anew: alone, they find accidents, not
forgers. `dlobd run` and `dlobd show` print the bundle's own hash, which is the sha256 of `hashes` and so covers all
files. Note it where the bundle's holder cannot change it, then

    dlobd verify RUN --against HASH

finds any change. Without a noted hash, a change is found as far as the evidence tells the same twice. How far that is,
the mutations say.

No check knows a mutation. Each states a relation between two sources that holds for every honest run, with the
uncertainty that a busy machine gives it: tolerances are several times what was measured on a machine with seven
runnable threads per core. A change smaller than a tolerance is not found by it.

## Mutations

A mutation edits the evidence of a captured run. Then the report is computed anew from it and the bundle is sealed
again, as a forger would. Four authors wrote them, three of whom had not seen the checks. Each time, the checks were
extended by relations that show what had been missed, so that the tables below say what is noticed now. How many of the
next forger's edits are noticed, the first look at each set says:

| Set by somebody who had not seen the checks | Noticed at first |
|---|---|
{first}

Of the second set only those that were missed are in the tables below, made again from their descriptions.

A headline is the wall, a layer's time or degree of evidence by more than 1 % of the wall or 50 ms, an event of start-up
or teardown by as much, a metric, HDFS's use, the transport, versions, machine, settings or command. Those that change
none are not counted, nor are those after which nothing in the bundle says otherwise.

| Author | Mutations | Change a headline and leave a contradiction | Of these noticed |
|---|---|---|---|
{totals}

{sections}

## What cannot be found from inside

Where one source alone speaks, a change of it contradicts nothing. So these are found by a noted hash only:

{alone}
"""

FIRST = {
    "blind": (13, 30),
    "blind, a second set by the same author": (16, 32),
    "third": (26, 37),
    "fourth": (28, 37),
}
"""Set to how many were noticed before the checks were extended for it, and how many there were to notice."""


def text(found: Mapping[str, Sequence[Judgement]]) -> str:
    """The page, from all judgements by author."""
    every = [judgement for each in found.values() for judgement in each]
    totals = [_total(author, each) for author, each in found.items()] + [_total("all", every)]
    sections = [
        f"### {title}\n\n| Mutation | Of | Contradicted by | Headlines | Noticed by |\n|---|---|---|---|---|\n"
        + "\n".join(row(judgement) for judgement in found[author])
        for author, title in AUTHORS.items()
    ]
    alone = "\n".join(f"- {one.mutation.name}" for one in every if one.headlines and not one.mutation.contradicts)
    first = "\n".join(f"| {name} | {noticed} of {of} ({noticed / of:.0%}) |" for name, (noticed, of) in FIRST.items())
    return PAGE.format(first=first, totals="\n".join(totals), sections="\n\n".join(sections), alone=alone)


def row(judgement: Judgement) -> str:
    """One mutation in the table."""
    mutation = judgement.mutation
    noticed = _some(judgement.noticed) or ("not noticed" if judgement.counts else "-")
    contradicts = mutation.contradicts or "nothing"
    cells = (mutation.name, mutation.bundle, contradicts, _some(judgement.headlines) or "none", noticed)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _total(author: str, found: Iterable[Judgement]) -> str:
    found = list(found)
    counted = [judgement for judgement in found if judgement.counts]
    noticed = sum(bool(judgement.noticed) for judgement in counted)
    return f"| {author} | {len(found)} | {len(counted)} | {noticed} ({noticed / len(counted):.0%}) |"


def _some(words: Sequence[str], shown: int = 3) -> str:
    rest = f" and {len(words) - shown} more" if len(words) > shown else ""
    return ", ".join(words[:shown]) + rest
