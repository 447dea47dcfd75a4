"""dlobd verify"""

from __future__ import annotations

from dlobd.cli.options import RUNS, Json, Out, RunRef
from dlobd.cli.printing import print_json
from dlobd.errors import BundleError


def verify(run: RunRef = "latest", out: Out = RUNS, as_json: Json = False) -> int:
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
        raise BundleError(f"{bundle.path} does not hold: {', '.join(wrong)}.")
    return 0
