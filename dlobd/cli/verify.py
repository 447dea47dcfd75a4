"""dlobd verify"""

from __future__ import annotations

from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Json, Out, RunRef
from dlobd.cli.printing import print_json
from dlobd.errors import BundleError


def verify(
    run: RunRef = "latest",
    against: Annotated[
        str, typer.Option("--against", metavar="HASH", help="The bundle's hash, as it was noted elsewhere.")
    ] = "",
    out: Out = RUNS,
    as_json: Json = False,
) -> int:
    """Recompute a run's report from its raw evidence and compare.

    Also checks the bundle's files against their hashes, and audits independent sources against each other.
    Hashes are unkeyed: whoever changes a bundle can seal it again. Its sources then contradict each other, or not;
    --against finds any change. `dlobd run` and `dlobd show` print the hash to be noted.
    Exit code 7 if anything differs.
    """
    import dataclasses

    from dlobd.attribution.audits import audit
    from dlobd.attribution.importers.evidence import Evidence
    from dlobd.attribution.verification import verify as verified
    from dlobd.bundle import store

    bundle = store.find(run, out)
    answers = verified(bundle, against)
    audits = audit(Evidence(bundle.path))
    if as_json:
        print_json({name: [dataclasses.asdict(one) for one in rows] for name, rows in
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
        raise BundleError(f"{bundle.path} failed verification: {', '.join(wrong)}.")
    return 0
