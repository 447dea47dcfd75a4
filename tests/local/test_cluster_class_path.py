from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from dlobd.errors import SetupError
from dlobd.hadoop.embedded import class_path
from dlobd.hadoop.embedded.class_path import ClassPath, prepare
from dlobd.hadoop.embedded.java import Java
from dlobd.paths import python

PACKAGE = "org/apache/hadoop/hdfs/web/resources/"
SERVER = {"webapps/hdfs/a.js": "of the server", PACKAGE: "", f"{PACKAGE}A.class": "first" * 99, "B.class": "b" * 999}
CLIENT = {"webapps/node/": "", f"{PACKAGE}A.class": "second", "C.class": "c", "META-INF/MANIFEST.MF": "x"}

DUMPS = """
import pathlib, sys, time
options = dict(word.split("=", 1) for word in sys.argv if word.startswith("-XX:Shared"))
listed = pathlib.Path(options["-XX:SharedClassListFile"]).read_text()
assert "java/lang/Object" in listed.splitlines()
with open(sys.argv[0] + ".calls", "a") as calls:
    calls.write(sys.argv[-1] + "\\n")
time.sleep(0.2)
pathlib.Path(options["-XX:SharedArchiveFile"]).write_text("an archive")
"""


def jar(path: Path, entries: dict[str, str]) -> Path:
    """A jar with compressed entries; directories end in a slash."""
    with ZipFile(path, "w", ZIP_DEFLATED) as made:
        for name, text in entries.items():
            made.writestr(name, text)
    return path


def fake_java(home: Path, script: str) -> Java:
    (home / "bin").mkdir(parents=True)
    command = home / "bin" / "java"
    command.write_text(f"#!{python()}\n{script}")
    command.chmod(0o755)
    return Java(home, "17.0.1", "test")


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The jars that are not pyspark's; pyspark's are in place, and the cache has a name of its own language."""
    pyspark = tmp_path / "pyspark" / "jars"
    pyspark.mkdir(parents=True)
    for name in class_path._FROM_PYSPARK:
        jar(pyspark / f"{name}-1.0.jar", CLIENT if name == "hadoop-client-api" else {"D.class": name})
    monkeypatch.setattr(class_path, "spark_home", lambda: pyspark.parent)
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "Gerät 1"))
    (tmp_path / "jars").mkdir()
    return [
        jar(tmp_path / "jars" / "hadoop-client-minicluster-3.5.0.jar", SERVER),
        jar(tmp_path / "jars" / "bcprov-1.jar", {"E.class": "e"}),
    ]


def silent(line: str) -> None:
    """No progress."""


def test_what_is_looked_for_is_in_a_jar_of_its_own_and_nothing_is_lost(jars: list[Path], tmp_path: Path) -> None:
    """The first jar has web applications and scanned packages, the first of equal names; the others have the rest."""
    found = prepare(fake_java(tmp_path / "java", DUMPS), jars, silent).jars
    assert [path.name for path in found[:3]] == ["scanned.jar", "hadoop-client-minicluster-3.5.0.jar", "bcprov-1.jar"]
    assert found[2] == jars[1], "a jar with nothing of the kind is used where it lies"
    content: dict[str, str] = {}
    for path in found[:2] + found[3:4]:
        with ZipFile(path) as read:
            assert read.testzip() is None
            for name in read.namelist():
                scanned = name.startswith(("webapps/", PACKAGE))
                assert scanned == (path.name == "scanned.jar")
                content.setdefault(name, read.read(name).decode())
    assert content == CLIENT | SERVER
    listing = subprocess.run([sys.executable, "-m", "zipfile", "-t", found[1]], capture_output=True, check=True)
    assert b"corrupted" not in listing.stdout


def test_it_is_made_once_and_again_for_another_java_or_jar(jars: list[Path], tmp_path: Path) -> None:
    """The second start only looks; another Java, or a jar with another time, gets an archive of its own."""
    java = fake_java(tmp_path / "java", DUMPS)
    calls = Path(f"{java.command}.calls")
    first = prepare(java, jars, silent)
    assert first.archive.read_text() == "an archive"
    assert calls.read_text() == os.pathsep.join(map(str, first.jars)) + "\n", "the class path, without configuration"
    assert prepare(java, jars, silent) == first
    os.utime(jars[1], ns=(1, 1))
    changed = prepare(java, jars, silent)
    newer = prepare(Java(java.home, "17.0.2", "test"), jars, silent)
    assert len({first.archive, changed.archive, newer.archive}) == 3
    assert len(calls.read_text().splitlines()) == 3


def test_two_makers_make_one(jars: list[Path], tmp_path: Path) -> None:
    java = fake_java(tmp_path / "java", DUMPS)
    found: list[ClassPath] = []
    makers = [threading.Thread(target=lambda: found.append(prepare(java, jars, silent))) for _ in range(3)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert len(found) == 3
    assert found[0] == found[1] == found[2]
    assert len(Path(f"{java.command}.calls").read_text().splitlines()) == 1


@pytest.mark.parametrize("script", ["import sys; sys.exit(1)", "", "import time; time.sleep(60)"])
def test_a_java_that_makes_no_archive_is_asked_once(
    jars: list[Path], tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_path, "ARCHIVE_DEADLINE_S", 1)
    java = fake_java(tmp_path / "java", script)
    first = prepare(java, jars, silent)
    assert first.archive is None
    assert first.jars[0].name == "scanned.jar"
    java.command.unlink()
    assert prepare(java, jars, silent) == first


def test_damage_is_repaired_and_what_is_unused_goes(jars: list[Path], tmp_path: Path) -> None:
    """A jar that was cut is made again with its archive; so go half-made directories and those of Javas long gone."""
    java = fake_java(tmp_path / "java", DUMPS)
    first = prepare(java, jars, silent)
    directory = first.jars[0].parent
    half, old, other = (directory.parent / name for name in (".making-x", "old", "other"))
    for path in (half, old, other):
        path.mkdir()
    os.utime(old, (1, time.time() - class_path.UNUSED_S - 60))
    os.truncate(first.jars[1], 50)
    assert prepare(java, jars, silent) == first
    assert ZipFile(first.jars[1]).testzip() is None
    assert sorted(path.name for path in directory.parent.iterdir() if path.is_dir()) == sorted(
        [directory.name, "other"]
    )


def test_a_cache_that_cannot_be_written_breaks_no_start(
    jars: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "file"))
    said: list[str] = []
    found = prepare(fake_java(tmp_path / "java", DUMPS), jars, said.append)
    assert found.archive is None
    assert found.jars[:2] == tuple(jars)
    assert len(found.jars) == 2 + len(class_path._FROM_PYSPARK)
    assert "start-up is slower" in said[-1]
    found.jars[-1].unlink()
    with pytest.raises(SetupError, match="pyspark"):
        prepare(fake_java(tmp_path / "java2", DUMPS), jars, silent)


def test_the_configuration_comes_last() -> None:
    assert ClassPath((Path("/a"), Path("/b"))).options(Path("/c")) == ["-cp", "/a:/b:/c"]
    options = ClassPath((Path("/a"),), Path("/x.jsa")).options(Path("/c"))
    assert options[-3:] == ["-XX:SharedArchiveFile=/x.jsa", "-cp", "/a:/c"]
