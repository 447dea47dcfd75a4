"""A run that somebody else submits to an external cluster: the bundle is made from the cluster's own interfaces.

The cluster is the tests' own, but the commands have another cache, so that they find nothing of it by the file system.
Its nodes get an archive of the user's, as small as one can be; tests/full/clusters packs a whole environment.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from dlobd.bundle.files import MODEL
from dlobd.job.models import softmax
from dlobd.run import packing
from tests.cluster.conftest import warnings_of
from tests.cluster.test_ways import explained, same_training

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def small_archive(path: Path, script: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data, mode in (("bin/python", script.encode(), 0o755), (f"lib/{packing.PYTHON}/os.py", b"", 0o644)):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, BytesIO(data))
    return path


def prepared(dlobd, conf: Path, archive: Path, *settings: str) -> tuple[str, Path]:
    """The printed line, and the bundle that waits for its application."""
    sets = [word for setting in settings for word in ("--set", setting)]
    words = ["run", "softmax-mnist-quick", *sets, "--hadoop-conf", str(conf), "--archive", str(archive), "--by-hand"]
    ended = dlobd(*words, "--out", str(dlobd.out))
    assert ended.code == 0, ended.err
    return ended.out.splitlines()[0], ended.bundle.path


def submitted(line: str, cwd: Path) -> str:
    """Runs the line in a shell that knows nothing of dlobd; the application's id."""
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin"},
        timeout=300,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == ""
    return next(word for word in done.stderr.replace("(", " ").split() if word.startswith("application_"))


def test_a_run_submitted_by_hand_is_collected(shared_cluster, alone, quick_run, tmp_path) -> None:
    """In cluster mode nothing of a run is left on the machine that submitted it, and all of it is explained."""
    conf = shared_cluster.client_conf_dir
    archive = small_archive(tmp_path / "own.tar.gz", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    model = Path(shutil.copy(softmax.__file__, tmp_path / "own_model.py"))
    line, bundle = prepared(alone, conf, archive, "deploy_mode=cluster", f"model={model}:build", "exchange=ring")
    assert json.loads((bundle / "run.json").read_text())["reason"].startswith("prepared to be submitted by hand")
    application = submitted(line, tmp_path)
    elsewhere = tmp_path / "elsewhere"
    ended = alone("collect", bundle.name, "--hadoop-conf", str(conf), "--out", str(elsewhere))
    assert ended.code == 0, ended.err
    assert ended.bundle.path == (elsewhere / "softmax-mnist-quick" / bundle.name).resolve(), "the run's own id"
    layers = explained(ended.bundle)
    assert {"yarn", "spark", "launcher", "hdfs", "tensorflow", "channel"} <= layers.keys()
    same_training(ended.bundle, quick_run.bundle)
    run = json.loads((ended.bundle.path / "run.json").read_text())
    assert run["window"]["name"] == "RM startedTime -> finishedTime"
    record = json.loads((ended.bundle.evidence / "rm-app.json").read_text())
    assert run["wall_ns"] == (record["finishedTime"] - record["startedTime"]) * 1_000_000
    assert run["versions"]["hadoop"] == "3.5.0"
    assert warnings_of(run) == []
    (exchange,) = [plane for plane in run["transport"] if plane["plane"] == "exchange"]
    assert (exchange["kind"], exchange["agrees"]) == ("tcp", True), exchange
    assert (ended.bundle.path / MODEL).read_text() == model.read_text(), "it came out of HDFS"
    for container in ("000001", "000002", "000003"):
        (found,) = (ended.bundle.logs / "containers").glob(f"*_{container}")
        assert (found / "stderr").stat().st_size > 0
    number = application.removeprefix("application_")
    for log in (ended.bundle.logs / "daemons").glob("*manager*.log"):
        assert all(number in one for one in log.read_text().splitlines()), "other applications' lines are not ours"
    unknown = alone("collect", f"{application}0", "--hadoop-conf", str(conf))
    assert unknown.code == 2
    assert f"has no record of {application}0" in unknown.line


def test_an_application_that_dlobd_did_not_prepare(shared_cluster, alone, quick_run) -> None:
    application = json.loads((quick_run.bundle.evidence / "rm-app.json").read_text())["id"]
    ended = alone("collect", application, "--hadoop-conf", str(shared_cluster.client_conf_dir))
    assert ended.code == 2
    assert f"{application} cannot be collected" in ended.line
