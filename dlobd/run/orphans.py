"""Ends YARN applications that a killed dlobd command has left running.

Only a driver inside the cluster outlives its dlobd process; the kernel ends a driver beside spark-submit. Each run
writes a note to the cache directory before it submits, and removes the note when its application has ended. Only
applications with a note of a dead dlobd process are ended: never those of another user, or submitted by hand.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from dlobd.hadoop.embedded.configuration import user_name
from dlobd.hadoop.web import HadoopWeb, JsonObject
from dlobd.paths import cache_dir, make_writable, replace_file
from dlobd.process_id import ProcessId, identify
from dlobd.run.collect import application
from dlobd.run.observer import Report
from dlobd.tracing import clock

SUBMITTED = "submitted"
"""Directory of the notes in the cache directory."""


def tag_of(run_id: str) -> str:
    """Return the YARN tag of a run's application. YARN stores tags in lower case."""
    return f"dlobd-{run_id.lower()}"


@dataclass(frozen=True, slots=True)
class Submission:
    """A run whose application may still run. `domain` identifies machine and boot; see `clock.domain`."""

    run_id: str
    rm_url: str
    domain: str
    owner: ProcessId


@contextmanager
def watched(run_id: str, rm_url: str | None) -> Iterator[None]:
    """Keep a note of the run until the context ends. After an exception it stays: the application may still run.
    Without `rm_url` no application outlives dlobd. Raises SetupError if the cache directory cannot be written."""
    owner = identify(os.getpid())
    if rm_url is None or owner is None:
        yield
        return
    path = cache_dir() / SUBMITTED / f"{run_id}.json"
    make_writable(path.parent)
    note = asdict(Submission(run_id, rm_url, clock.domain(), owner))
    replace_file(path, json.dumps(note).encode(), durable=False)
    yield
    path.unlink(missing_ok=True)


def end_orphans(rm_url: str, nm_urls: Sequence[str], report: Report) -> None:
    """End the orphaned applications of this ResourceManager and report each application."""
    for path in sorted((cache_dir() / SUBMITTED).glob("*.json")):
        note = _read(path)
        if note is None or note.rm_url != rm_url or not note.owner.ended(note.domain, clock.domain()):
            continue
        records = applications(rm_url, tag_of(note.run_id))
        if records is None:
            continue  # no answer: the next command tries again
        for record in records:
            if record.get("user") != user_name() or record.get("state") in application.ENDED:
                continue
            application.await_end(rm_url, nm_urls, record["id"], kill=True)
            report(f"ended {record['id']}, which run {note.run_id} left running (its dlobd was killed)")
        path.unlink(missing_ok=True)


def applications(rm_url: str, tag: str) -> list[JsonObject] | None:
    """Return the ResourceManager's records of applications with a tag, oldest first; None without an answer."""
    answer = HadoopWeb.get_json(f"{rm_url}/ws/v1/cluster/apps", applicationTags=tag)
    if answer is None:
        return None
    records = (answer.get("apps") or {}).get("app") or []
    return sorted(records, key=lambda record: record.get("startedTime", 0))


def _read(path: Path) -> Submission | None:
    """Return a note; None if it is damaged, of another version, or removed by another command."""
    try:
        raw = json.loads(path.read_text())
        return Submission(raw["run_id"], raw["rm_url"], raw["domain"], ProcessId(**raw["owner"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
