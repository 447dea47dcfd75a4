"""What an import of dlobd imports."""

from __future__ import annotations

import sys


def test_importing_dlobd_does_not_import_pandas() -> None:
    """The package is imported in every process of a job: it must stay cheap there."""
    import subprocess

    code = "import sys, dlobd; print('pandas' in sys.modules, dlobd.load.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.split() == ["False", "load"]
