"""`dlobd verify`: checks a bundle against its raw evidence."""

from __future__ import annotations

from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Json, Out, RunRef
from dlobd.cli.printing import print_json
from dlobd.cli.series import find_run
from dlobd.errors import BundleError


def verify(
    run: RunRef = "latest",
    against: Annotated[str, typer.Option("--against", metavar="HASH", help="Bundle hash that you noted earlier.")] = "",
    full: Annotated[bool, typer.Option("--full", help="List passed checks as well.")] = False,
    out: Out = RUNS,
    as_json: Json = False,
) -> int:
    """Recompute a run's report from its raw evidence, and compare it with the stored report.

    Verifies the hashes of the bundle's files, and repeats the checks of the run.
    The hashes have no key: anybody can change a bundle and recompute them. `dlobd run` and `dlobd show` print the
    bundle's hash; --against compares it with a hash that you noted earlier.
    Exit code 7: a difference, or a failed check.
    """
    import dataclasses

    from dlobd.recompute.verification import verify as verified

    bundle = find_run(run, out)
    found = verified(bundle, against)
    if as_json:
        print_json(dataclasses.asdict(found))
    else:
        for answer in found.answers:
            print(f"{'ok' if answer.ok else 'FAIL':11} {answer.question}: {answer.detail}")
        words = {"pass": "ok", "fail": "FAIL", "unknown": "impossible"}
        for check in found.checks:
            if full or check.verdict != "pass":
                print(f"{words[check.verdict]:11} {check.code}: {check.message}")
    if found.failed:
        raise BundleError(f"{bundle.path} failed verification: {', '.join(found.failed)}.")
    if not as_json:
        passed = sum(check.verdict == "pass" for check in found.checks)
        print(f"verified: {bundle.path.name}, {passed} of {len(found.checks)} checks passed")
    return 0
