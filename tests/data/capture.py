"""Reduce the bundle of a run to the evidence that dlobd reads, without the paths and names of the machine that made it.

    python -m tests.data.capture BUNDLE TARGET [LEFT_OUT...]

Log lines stay unchanged. Lines of loggers that dlobd does not read, such as the web server's, are left out, and so are
lines that are no log events. Files named in LEFT_OUT are left out, too. TARGET is a bundle with its own hashes.
"""

from __future__ import annotations

import getpass
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import dlobd
from dlobd import paths
from dlobd.bundle.store import Bundle
from dlobd.evidence import log4j
from dlobd.experiment import own_job
from dlobd.recompute import computed
from tests.captured import note_sizes
from tests.recorded import lines_of

KEEP = (
    "evidence/window.json",
    "evidence/job.json",
    "evidence/script.py",
    "evidence/markers.json",
    "evidence/blocks.json",
    "evidence/checksums.json",
    "evidence/noise.json",
    "evidence/span_cost.json",
    "evidence/page_cache.json",
    "evidence/environment_cache.json",
    "evidence/daemons.json",
    "evidence/nm-containers.json",
    "evidence/rm-app.json",
    "evidence/collected.json",
    "evidence/event-log.jsonl",
    "evidence/driver-jvm.log",
    "evidence/resources.jsonl",
    "logs/driver.*",
    "logs/daemons/resourcemanager.log",
    "logs/daemons/nodemanager-[0-9].log",
    "logs/daemons/namenode.log",
    "logs/daemons/namenode-audit.log",
    "logs/daemons/datanode-[0-9].log",
    "logs/daemons/datanode-[0-9]-clienttrace.log",
    "logs/containers/*/stderr",
    "logs/containers/*/spark.log",
    "logs/containers/*/jvm.log",
    "spans/*/*.jsonl*",
)
NOISE = re.compile(
    r"ContextHandler|ServerInfo|server\.|SecurityManager|MemoryStore|ResourceUtils|ResourceProfile|security\.|util\.log|"
    r"BlockManager|ParentQueue|LeafQueue|AuditLogger|logaggregation|MapOutputTracker|StateChange|"
    r"localizer|ContainersMonitor|cmd=(getfileinfo|listStatus)"
)
KEPT = re.compile(r"Changing view acls to:|SecurityManager: authentication|stored as values|resource-types\.xml|Will request ")
"""Exceptions from NOISE: phases of Spark's JVMs begin or end with these lines."""
LOG4J = re.compile(r"\S+Z \S+ INFO (Using provider:|Configuration \S+ started\.)")
EVENTS = (
    "SparkListenerLogStart", "SparkListenerEnvironmentUpdate", "SparkListenerApplicationStart",
    "SparkListenerBlockManagerAdded", "SparkListenerJobStart", "SparkListenerStageSubmitted",
    "SparkListenerStageCompleted", "SparkListenerTaskEnd", "SparkListenerApplicationEnd",
)
SETTINGS, READ_SETTINGS = "SparkListenerEnvironmentUpdate", ("yarn.resourcemanager.nodemanagers.heartbeat-interval-ms",)
JVM_MARKS = re.compile(r"\] Using|Create VM|Pause|gc,heap,exit")


def main(source: Path, target: Path, left_out: Sequence[str]) -> None:
    """Write the reduced bundle; it replaces an existing bundle."""
    shutil.rmtree(target, ignore_errors=True)
    names = _Names(source)
    for pattern in KEEP:
        for path in sorted(source.glob(pattern)):
            if (name := str(path.relative_to(source))) in left_out:
                continue
            if name.startswith("spans/"):
                lines, name = [f"{line}\n" for line in lines_of(path)], name.removesuffix(".gz")
            else:
                lines = path.read_text(errors="replace").splitlines(keepends=True)
            _write(target / name, names.hide("".join(_reduced(line) for line in lines if _is_read(name, line))))
    note_sizes(target)
    run = json.loads(names.hide(json.dumps(Bundle(source).read_json())))
    bundle = Bundle(target)
    # computed from the reduced evidence
    run |= computed.computed(bundle, own_job.from_dict(run["configuration"])).to_json()
    bundle.write(run)
    bundle.seal()


def _is_read(name: str, line: str) -> bool:
    if name.endswith("jvm.log"):
        return bool(JVM_MARKS.search(line))
    if name.endswith("event-log.jsonl"):
        return any(f'"{event}"' in line[:60] for event in (*EVENTS, SETTINGS))
    if name.endswith("driver.stdout"):
        return "dlobd: " in line
    if name.endswith("namenode.log"):
        return "COMMITTED but not COMPLETE" in line or " is closed by " in line
    if not name.startswith("logs/"):
        return True
    if KEPT.search(line) or LOG4J.match(line):
        return True
    event = next(log4j.parse([line], name), None)
    return event is not None and not NOISE.search(f"{event.logger} {event.message[:100]}")


def _reduced(line: str) -> str:
    """Keep the settings that dlobd reads of Spark's environment event, without the machine's class path."""
    if f'"{SETTINGS}"' not in line[:60]:
        return line
    event = json.loads(line)
    kept = {key: event[key] for key in ("Event", "JVM Information", "Spark Properties")}
    hadoop = event["Hadoop Properties"]
    return json.dumps({**kept, "Hadoop Properties": {key: hadoop[key] for key in READ_SETTINGS}}) + "\n"


class _Names:
    """Identifiers of the machine: its paths, its name and its boot ID."""

    def __init__(self, source: Path) -> None:
        domain = json.loads((source / "evidence" / "window.json").read_text())["anchors"][0]["domain"]
        host, boot, _ = domain.split("/")
        user = getpass.getuser()
        checkout = Path(dlobd.__file__).resolve().parents[1]
        self._changes = (
            (re.escape(str(checkout)), "/opt/dlobd"),
            (re.escape(str(paths.cache_dir())), "/var/cache/dlobd"),
            (rf"/user/{user}\b", "/user/dlobd"),
            (rf"ugi={user}\b", "ugi=dlobd"),
            (rf"usercache/{user}\b", "usercache/dlobd"),
            (r"(?<![\w.-])" + re.escape(str(Path.home())) + r"(?=/)", "/opt/dlobd"),
            (r"/tmp/[\w.-]+", "/var/dlobd"),
            (r"/usr/lib/jvm/[\w.-]+", "/opt/java"),
            (re.escape(boot), "00000000-0000-0000-0000-000000000000"),
            (rf'(?<=["@]){re.escape(host)}(?=["/\s])', "host"),
        )

    def hide(self, text: str) -> str:
        for pattern, instead in self._changes:
            text = re.sub(pattern, instead, text)
        return text


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
