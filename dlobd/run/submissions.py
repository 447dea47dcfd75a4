"""What was submitted to YARN and is watched by a dlobd: the next command ends what a killed one left.

Only a driver in the cluster outlives its dlobd: beside spark-submit the kernel ends it. Each run notes itself in the
cache directory before it submits, and removes the note once its application has ended. A note whose dlobd is dead is
the one sign by which an application is ended here: never another user's, nor one submitted by hand.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlobd.hadoop.embedded.configuration import user_name
from dlobd.hadoop.embedded.processes import ProcessId, identify
from dlobd.hadoop.web import HadoopWeb
from dlobd.paths import cache_dir, make_writable, replace_file
from dlobd.run.collect import application
from dlobd.tracing import clock

SUBMITTED = "submitted"
"""Name in the cache directory."""


def tag_of(run_id: str) -> str:
    """The tag by which YARN finds the application of a run; YARN has tags in small letters."""
    return f"dlobd-{run_id.lower()}"


@dataclass(frozen=True, slots=True)
class Submission:
    """A run whose application may run; `domain` tells machines and boots apart, as of `clock.domain`."""

    run_id: str
    rm_url: str
    domain: str
    owner: ProcessId

    def orphaned(self) -> bool:
        """Whether the dlobd that watched it is surely dead; on another machine this is unknown."""
        here = clock.domain().split("/")
        there = self.domain.split("/")
        if there[0] != here[0] or "unknown" in there[1:] + here[1:]:
            return False
        if there[1] != here[1]:
            return True  # the machine was started again since
        return there == here and not self.owner.alive


@contextmanager
def watched(run_id: str, rm_url: str | None) -> Iterator[None]:
    """Notes a run until the context ends well: what breaks off, its application may outlive.

    Args:
        rm_url: the ResourceManager's; without one nothing outlives its dlobd, and nothing is noted.

    Raises:
        SetupError: the cache directory cannot be written.
    """
    owner = identify(os.getpid())
    if rm_url is None or owner is None:
        yield
        return
    path = _directory() / f"{run_id}.json"
    make_writable(path.parent)
    note = asdict(Submission(run_id, rm_url, clock.domain(), owner))
    replace_file(path, json.dumps(note).encode(), durable=False)
    yield
    path.unlink(missing_ok=True)


def end_orphans(rm_url: str, nm_urls: Sequence[str], told: Callable[[str], None]) -> None:
    """Ends what runs of killed dlobds left on the cluster of this ResourceManager, each with a line."""
    for path in sorted(_directory().glob("*.json")):
        found = _read(path)
        if found is None or found.rm_url != rm_url or not found.orphaned():
            continue
        records = applications(rm_url, tag_of(found.run_id))
        if records is None:
            continue  # it is asked again next time
        for record in records:
            if record.get("user") != user_name() or record.get("state") in application.ENDED:
                continue
            application.await_end(rm_url, nm_urls, record["id"], kill=True)
            told(f"ended {record['id']}, which run {found.run_id} left running (its dlobd was killed)")
        path.unlink(missing_ok=True)


def applications(rm_url: str, tag: str) -> list[dict[str, Any]] | None:
    """The ResourceManager's records of the applications that carry a tag, oldest first; None if it does not answer."""
    answer = HadoopWeb.get_json(f"{rm_url}/ws/v1/cluster/apps", applicationTags=tag)
    if answer is None:
        return None
    found = (answer.get("apps") or {}).get("app") or []
    return sorted(found, key=lambda record: record.get("startedTime", 0))


def _directory() -> Path:
    return cache_dir() / SUBMITTED


def _read(path: Path) -> Submission | None:
    """A note; None if another command has removed it, or it cannot be understood."""
    try:
        raw = json.loads(path.read_text())
        return Submission(raw["run_id"], raw["rm_url"], raw["domain"], ProcessId(**raw["owner"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
