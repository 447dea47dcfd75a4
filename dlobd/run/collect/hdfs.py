"""Copies a job's evidence from HDFS into its bundle: event log, done-markers, block locations, checksums."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import requests

from dlobd.bundle import files
from dlobd.bundle.store import Bundle, NotCollected
from dlobd.hadoop import webhdfs
from dlobd.hadoop.checksum import same_form
from dlobd.job.description import STAGED
from dlobd.run.collect import event_logs


def from_hdfs(
    url: str, user: str, events_dir: str, applications: Sequence[str], train_dir: str, run_dir: str, bundle: Bundle
) -> list[str]:
    """Copy event logs, markers and block locations; return a line for each missing source.

    `events_dir` is spark.eventLog.dir of dlobd. `train_dir` and `run_dir` are empty if the job has no such directory.
    """
    missing: list[str] = []
    client = webhdfs.Client(url, user, timed=False)
    in_hdfs = event_logs.Files(client.list, partial(_read, client))
    parts: list[tuple[str, str, Callable[[], None]]] = []
    # without an event log, a SparkContext with a local master has no ID
    for number, one in enumerate(applications or ("",), 1):
        name = files.of_application(files.EVENT_LOG, number)
        parts.append(("event log", name, partial(event_logs.collect, one, events_dir, in_hdfs, bundle, name)))
    if train_dir:
        parts.append(("block locations", files.BLOCKS, lambda: _blocks(client, url, user, train_dir, bundle)))
        parts.append(("checksums of the input", files.CHECKSUMS, lambda: _checksums(client, train_dir, bundle)))
    if run_dir:
        parts.append(("done-markers", files.MARKERS, lambda: _markers(client, run_dir, bundle)))
    for what, name, collected in parts:
        try:
            collected()
        except (webhdfs.HdfsError, requests.RequestException, ValueError) as error:
            missing.append(NotCollected(f"{what}: {' '.join(str(error).split())[:200]}", name))
    return missing


def _read(client: webhdfs.Client, path: str) -> bytes:
    with client.read(path) as reader:
        content: bytes = reader.read()
        return content


def _blocks(client: webhdfs.Client, url: str, user: str, train_dir: str, bundle: Bundle) -> None:
    blocks = {}
    for name, status in client.list(train_dir, status=True):
        path = f"{train_dir}/{name}"
        blocks[path] = webhdfs.block_locations(url, user, path, status["length"])
    bundle.add_json(blocks, files.BLOCKS)


def _checksums(client: webhdfs.Client, train_dir: str, bundle: Bundle) -> None:
    """Copy the input files' checksums from HDFS and from staging; data sets of older versions have only HDFS's."""
    noted: dict[str, str] = json.loads(_read(client, f"{Path(train_dir).parent}/{STAGED}") or b"{}")
    stored = {}
    for name in client.list(train_dir):
        path = f"{train_dir}/{name}"
        answer = client.checksum(path)
        if same_form(answer["algorithm"], answer["bytes"], noted.get(path)):
            stored[path] = answer["bytes"][: 2 * answer["length"]]  # zeros follow
    staged = {path: checksum for path, checksum in noted.items() if path in stored}
    bundle.add_json({"staged": staged, "hdfs": stored}, files.CHECKSUMS)


def _markers(client: webhdfs.Client, run_dir: str, bundle: Bundle) -> None:
    directory = f"{run_dir}/done"
    markers = {name: _read(client, f"{directory}/{name}").decode() for name in client.list(directory)}
    bundle.add_json(markers, files.MARKERS)
