"""`dlobd verify`: checks a bundle against its raw evidence."""

from collections import Counter
from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Json, Out, RunRef
from dlobd.cli.printing import find_run, print_json
from dlobd.errors import BundleError


def verify(
    run: RunRef = "latest",
    against: Annotated[str, typer.Option("--against", metavar="HASH", help="Bundle hash that you noted earlier.")] = "",
    full: Annotated[bool, typer.Option("--full", help="List all checks and comparisons.")] = False,
    out: Out = RUNS,
    as_json: Json = False,
) -> int:
    """Recompute a run's report from its raw evidence, and compare it with the stored report.

    Verifies the hashes of the bundle's files, and repeats the checks of the run.
    The hashes have no key: anybody can change a bundle and recompute them. `dlobd run` and `dlobd show` print the
    bundle's hash; --against compares it with a hash that you noted earlier.
    The last line is the verdict. Exit code 7: a difference, or a failed check.
    """
    from dlobd.recompute.verification import verify as verified

    bundle = find_run(run, out)
    found = verified(bundle, against)
    if as_json:
        print_json(found)
    else:
        for answer in found.answers:
            if full or found.failed:
                print(f"{'ok' if answer.ok else 'FAIL':7} {answer.question}: {answer.detail}")
        words = {"pass": "ok", "fail": "FAIL", "unknown": "unknown"}
        for check in found.checks:
            if full or (found.failed and check.verdict != "pass"):
                print(f"{words[check.verdict]:7} {check.code}: {check.message}")
    if found.failed:
        raise BundleError(f"{bundle.path} failed verification: {', '.join(found.failed)}.")
    if not as_json:
        count = Counter(check.verdict for check in found.checks)
        print(f"verified: {len(bundle.files())} files, {count['pass']} checks passed, {count['unknown']} unknown")
    return 0
