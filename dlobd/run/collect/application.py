"""Requests to YARN about an application: its diagnostics, its end and its memory."""

import time
from collections.abc import Iterable, Iterator, Sequence

import requests

from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.hadoop import http_session, web
from dlobd.hadoop.embedded.configuration import user_name
from dlobd.hadoop.web import JsonObject, application_record

END_DEADLINE_S = 20.0
"""Timeout for containers of an ended application to exit."""

_SOON_S = (3.0, 3.0)
"""Timeouts for connecting and for the answer. Failed requests are repeated."""

ENDED = ("FINISHED", "FAILED", "KILLED")
"""Final states of an application."""


def on_yarn(applications: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield number and ID of YARN's applications, from all applications of a run."""
    return ((number, one) for number, one in enumerate(applications, 1) if one.startswith("application_"))


def kill_application(rm_url: str, application_id: str) -> None:
    """Ask the ResourceManager to kill an application. Errors are ignored, because dlobd is exiting."""
    try:
        url = f"{rm_url}/ws/v1/cluster/apps/{application_id}/state?user.name={user_name()}"
        with http_session.session() as session:
            session.put(url, json={"state": "KILLED"}, timeout=3)
    except requests.RequestException:
        pass


def abort(rm_url: str, application_id: str) -> str:
    """Kill an application; return its diagnostics before the kill, empty if the ResourceManager does not answer."""
    diagnostics = str(application_record(rm_url, application_id, _SOON_S).get("diagnostics", ""))
    kill_application(rm_url, application_id)
    return diagnostics


def await_end(rm_url: str, nm_urls: Sequence[str], application_id: str, kill: bool) -> JsonObject:
    """Wait until the record of the application is final and its containers, at the NodeManagers `nm_urls`, have exited;
    return the ResourceManager's REST record, {} if it does not answer.

    `kill`: kill the application at once, because its driver was ended; else only after half the timeout.
    """
    deadline = time.monotonic() + END_DEADLINE_S
    kill_at = time.monotonic() if kill else deadline - END_DEADLINE_S / 2
    record: JsonObject = {}
    while time.monotonic() < deadline:
        record = application_record(rm_url, application_id, _SOON_S) or record  # else keep the previous record
        if _charged(record) and not _containers(nm_urls, application_id):
            break
        if time.monotonic() >= kill_at:
            kill_application(rm_url, application_id)
            kill_at = deadline
        time.sleep(0.2)
    return record


def _charged(record: JsonObject) -> bool:
    """Return True if the application has ended and its memorySeconds are final: the scheduler accounts for the last
    containers shortly after the end. The record then has -1 running containers."""
    return record.get("state") in ENDED and record.get("runningContainers", -1) < 0


def _containers(nm_urls: Sequence[str], application_id: str) -> list[str]:
    """Return the containers of the application that still run, according to the NodeManagers that answer."""
    number = application_id.removeprefix("application_")
    running = []
    for url in nm_urls:
        found = web.containers(url, _SOON_S)
        running += [c["id"] for c in found if number in c["id"] and c.get("state") not in ("COMPLETE", "DONE")]
    return running


def executor_peak(nm_urls: Sequence[str], applications: Iterable[str], bundle: Bundle) -> int | None:
    """Return the peak resident memory of the largest executor container, including its trainer, in bytes.

    The NodeManager samples the container's process tree once per second and keeps the record for a minute after the
    container's end. None if it cannot be read.
    """
    numbers = [one.removeprefix("application_") for _, one in on_yarn(applications)]
    beans: list[JsonObject] = []
    for url in nm_urls if numbers else ():
        found = web.beans(url, "Hadoop:service=NodeManager,*")
        beans += [bean for bean in found if any(number in bean.get("name", "") for number in numbers)]
    bundle.add_json(beans, files.NM_CONTAINERS)
    executors = [bean for bean in beans if not bean["name"].endswith("_000001")]
    peaks_mb = [
        bean[key] for bean in executors for key in bean if key.lower().startswith("pmemusage") and "max" in key.lower()
    ]
    return int(max(peaks_mb)) << 20 if peaks_mb and max(peaks_mb) > 0 else None
