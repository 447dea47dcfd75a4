"""A registry in a fresh process."""

from __future__ import annotations

import subprocess
import sys


def test_listing_imports_no_member() -> None:
    """`dlobd list` stays fast: asking what is available imports neither TensorFlow nor Spark nor our members."""
    code = (
        "import sys; from dlobd.axes import REGISTRIES; "
        "[r.available() for r in REGISTRIES.values()]; "
        "print([m for m in sys.modules if m.startswith(('tensorflow', 'pyspark', 'numpy', 'dlobd.job.datasets.'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "[]"
