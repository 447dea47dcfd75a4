"""What of a real run's evidence could be lacking without a word."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.search import missing


def unnoticed(bundle: Bundle, scratch: Path) -> list[str]:
    """The span files and logs whose absence nothing says, each deleted by itself, from the inventory too."""
    told = {(one.what, one.how) for one in missing(Evidence(bundle.path))}
    found = []
    for number, name in enumerate(name for name in bundle.files() if name.startswith(("spans/", "logs/"))):
        copy = scratch / str(number)
        shutil.copytree(bundle.path, copy, copy_function=os.link)
        (copy / name).unlink()
        collected = json.loads((copy / files.COLLECTED).read_text())
        (copy / files.COLLECTED).unlink()  # a link: what is written there would be the bundle's
        (copy / files.COLLECTED).write_text(json.dumps({**collected, "files": {}}))
        if {(one.what, one.how) for one in missing(Evidence(copy))} <= told:
            found.append(name)
        shutil.rmtree(copy)
    return found
