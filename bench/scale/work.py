"""Work that has no command of its own, for a measurement in its own process.

python -m bench.scale.work {record|kernel|polars} BUNDLE
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path

from dlobd.bundle.store import Bundle


def record(bundle: Bundle) -> str:
    """Do what a run does after its job: compute the record, write it, and seal the bundle. Return a failure."""
    from dlobd.experiment.files import from_dict
    from dlobd.recompute.computed import computed

    run = bundle.read()
    found = computed(bundle, from_dict(asdict(run.configuration), "the bundle"), forgives=True)
    bundle.write(run.with_computed(found))
    bundle.seal()
    omitted = "; ".join(f"{one.part}: {one.reason}" for one in found.omitted)
    return omitted or ("" if found.status == "ok" else f"status {found.status}: {found.reason}")


def kernel(bundle: Bundle) -> str:
    """Read, assemble and attribute; print the number of spans."""
    from dlobd.attribution.attribute import attribute
    from dlobd.evidence.evidence import Evidence
    from dlobd.timeline.assemble import assemble

    trace = assemble(Evidence(bundle.path))
    attribution = attribute(trace)
    print(len(trace.spans))
    total_ns = sum(layer.ns for layer in attribution.layers) + attribution.unattributed_ns
    return "" if total_ns == trace.wall_ns else "the layers do not sum to the wall time"


def polars(bundle: Bundle) -> str:
    """Read the lines of all span files with polars, in one thread; print the number of lines."""
    os.environ["POLARS_MAX_THREADS"] = "1"
    import polars

    text, number = polars.String, polars.Int64
    wait = polars.Struct({"waits_for": polars.List(text), "rendezvous": text, "call": number})
    columns = {"k": text, "i": number, "p": number, "l": text, "n": text, "t": number, "d": number, "th": text}
    shape = {**columns, "w": wait, "a": polars.Struct({"bytes": number})}
    frames = [polars.read_ndjson(path, schema=shape) for path in sorted(bundle.spans.rglob("*.jsonl"))]
    print(sum(map(len, frames)))
    return ""


WORK = {"record": record, "kernel": kernel, "polars": polars}

if __name__ == "__main__":
    sys.exit(WORK[sys.argv[1]](Bundle(Path(sys.argv[2]).resolve())) or 0)
