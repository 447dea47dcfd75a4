"""Gives the captured bundles the member `checks` of this version, and seals them again.

    python tests/data/patch_checks.py

To be deleted once the bundles are captured anew.
"""

from __future__ import annotations

import json
from pathlib import Path

from dlobd.attribution import record
from dlobd.bundle.store import Bundle
from dlobd.bundle.upgrade import upgraded
from dlobd.experiment.own_job import from_dict

for path in sorted(Path(__file__).parent.glob("*/run.json")):
    run = json.loads(path.read_text())
    bundle = Bundle(path.parent)
    run.pop("audits", None)
    computed = record.computed(bundle, from_dict(upgraded(run)["configuration"]))
    run["checks"] = computed["checks"]
    assert (run["status"], run["wall_ns"]) == (computed["status"], computed["wall_ns"]), path
    path.write_text(json.dumps(run, indent=1) + "\n")
    bundle.seal()
    print(path, len(run["checks"]))
