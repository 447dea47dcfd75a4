"""Installs the packages of a user's job into an overlay: a directory beside the packages that the job finds anyway.

uv resolves the requirements against these packages at their versions, and installs only the missing packages. So an
overlay replaces no package that the nodes have: a requirement of another version is an error. An overlay is built once;
its name is the hash of the requirements and of these versions.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from dlobd.errors import SetupError, UsageError
from dlobd.paths import cache_dir, locked, shipped
from dlobd.run import packing
from dlobd.run.observer import Report
from dlobd.schema import OwnJob, Runnable

FORMAT = 1
"""Version of the layout, in the names of overlays."""

PACKAGES = "packages"
"""Directory of overlays in the cache."""

MODULES, RECORD = "lib", "packages.json"
"""Members of an overlay: its packages, and their names and versions."""

OLDEST = (3, 11)
"""Oldest Python that can record; PySpark 4.3 requires the same."""

ASK_S, BUILD_S = 60.0, 1800.0
"""Time limits for an interpreter's description, and for uv."""

MAX_CAUSE_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class JobPython:
    """Python of a job: directory of its overlay, if any, and versions that differ from those of dlobd's Python."""

    modules: Path | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


_VERSION = re.compile(r"\d[\d.]*(?:(?:a|b|rc|\.post|\.dev)\d+)*(?:\+[a-z\d.]+)?")
"""A version that a constraint may have. A Linux distribution may have other versions; uv refuses them."""

_DESCRIBE = """\
import json, platform, sys
sys.path[:] = [entry for entry in sys.path if entry]
from importlib import metadata
packages = []
for one in metadata.distributions():
    if not one.metadata["Name"]:
        continue
    packages.append([("Name", one.metadata["Name"]), ("Version", one.version)])
    packages[-1] += [("Provides-Extra", extra) for extra in one.metadata.get_all("Provides-Extra") or ()]
    packages[-1] += [("Requires-Dist", requirement) for requirement in one.requires or ()]
print(json.dumps([sys.version_info[:2], platform.python_version(), packages]))
"""


@dataclass(frozen=True, slots=True)
class _Interpreter:
    """Interpreter with the packages that a job finds on every node."""

    path: str
    version: str
    packages: Mapping[str, Mapping[str, list[str]]]  # normalised name -> fields of its METADATA

    def pins(self) -> list[str]:
        """Return the versions of the packages as constraints."""
        return sorted(f"{name}=={fields['Version'][0]}" for name, fields in self.packages.items())


def requirements(job: Runnable) -> list[str]:
    """Return the requirements of a job as arguments of pip."""
    if not isinstance(job, OwnJob):
        return []
    return [*job.packages, *(("-r", job.requirements) if job.requirements else ())]


def prepared(job: Runnable, report: Report) -> JobPython:
    """Check the Python of a job, and build its overlay unless it exists.

    Raises:
        UsageError: the interpreter cannot record, or the packages contradict each other or installed packages.
        SetupError: uv is missing, or cannot reach the package index, or cannot write.
    """
    words = requirements(job)
    if not isinstance(job, OwnJob) or not (job.python or words):
        return JobPython()
    python = _interpreter(job.python)
    versions = {"python": python.version} if job.python else {}
    if not words:
        return JobPython(None, versions)
    content = [FORMAT, python.path, python.version, python.pins(), words, job.requirements_sha256]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
    directory = cache_dir() / PACKAGES / digest
    with locked(directory.with_name(".lock")):
        if not directory.exists():
            report(f"installing packages, once: {' '.join(words)}")
            try:
                _build(python, words, directory)
            except OSError as error:
                what = f"The packages cannot be written to {directory}: {error.strerror}."
                raise SetupError(what, "free disk space, or set DLOBD_CACHE") from error
    return JobPython(directory / MODULES, versions | json.loads((directory / RECORD).read_text()))


def _interpreter(other: str) -> _Interpreter:
    """Describe an interpreter, by default that of dlobd, which has more packages than the nodes. Raises UsageError if
    it cannot record."""
    own = _described(sys.executable)[2]
    if not other:
        nodes = packing.on_nodes()
        on_nodes = {name: fields for name, fields in own.items() if name in nodes}
        return _Interpreter(sys.executable, platform.python_version(), on_nodes)
    version, text, packages = _described(other)
    if version < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise UsageError(f"--python {other} is Python {text}: recording needs {wanted} or later.", "name another")
    # Spark brings its PySpark, which precedes an installed one
    packages |= {name: own[name] for name in packing.APART & own.keys()}
    return _Interpreter(other, text, packages)


def _described(python: str) -> tuple[tuple[int, ...], str, dict[str, dict[str, list[str]]]]:
    """Return the version of an interpreter and its packages."""
    try:
        done = subprocess.run([python, "-c", _DESCRIBE], capture_output=True, text=True, timeout=ASK_S, check=False)
        version, text, packages = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        raise UsageError(f"--python {python} is not a Python interpreter.", "--python /usr/bin/python3") from None
    found: dict[str, dict[str, list[str]]] = {}
    for fields in packages:
        values: dict[str, list[str]] = {}
        for key, value in fields:
            values.setdefault(key, []).append(value)
        if _VERSION.fullmatch(values["Version"][0]):
            # Python imports the first of several packages with the same name
            found.setdefault(packing.normal(values["Name"][0]), values)
    return tuple(version), text, found


def _build(python: _Interpreter, words: Sequence[str], directory: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f"{directory.name}.", dir=directory.parent) as scratch:
        top = Path(scratch)
        view, pins, found, new = top / "view", top / "pins.txt", top / "found.txt", top / "new"
        pins.write_text("\n".join(python.pins()))
        found.write_text("\n".join(python.packages))
        for name, fields in python.packages.items():
            entry = view / f"{name.replace('-', '_')}-{fields['Version'][0]}.dist-info" / "METADATA"
            entry.parent.mkdir(parents=True)
            lines = [f"{key}: {value}" for key, values in fields.items() for value in values]
            entry.write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))
        install = _Uv(python.path).install
        # --target: uv takes the packages there as installed, and checks that the new packages agree with them
        install("--dry-run", "--target", view, "--constraints", pins, *words)
        options = ("--constraints", pins, "--excludes", found, "--compile-bytecode")
        (new / MODULES).mkdir(parents=True)
        versions = install("--target", new / MODULES, *options, *words)
        (new / MODULES / ".lock").unlink(missing_ok=True)  # of uv
        (new / RECORD).write_text(json.dumps(versions))
        new.rename(directory)


class _Uv:
    """The uv of dlobd's environment, with pip's settings."""

    def __init__(self, python: str) -> None:
        """Raise SetupError if uv is missing."""
        self._setup = _setup_script()
        if not self._setup.uv_runs():
            raise SetupError("--with and --requirements need uv, which is not installed.", "pip install uv")
        self._python = python

    def install(self, *words: str | Path) -> dict[str, str]:
        """Run `uv pip install`; return the versions of the packages that it installs."""
        setup = self._setup
        options, variables = setup.uv_settings()
        command = [setup.UV, "pip", "install", "--python", self._python, "--output-format=json", *options, *words]
        environment = {**variables, **os.environ}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", env=environment, timeout=BUILD_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise SetupError(f"uv did not install the packages within {BUILD_S:.0f} s.", "try again") from None
        if done.returncode == 0:
            return {change["name"]: change["version"] for change in json.loads(done.stdout)["changes"]}
        cause = _cause(done.stderr)
        for pattern, why, remedy in setup.MACHINE_REASONS:
            if re.search(pattern, done.stderr):
                raise SetupError(f"The packages cannot be installed: {why} ({cause})", remedy)
        remedy = "change --with or --requirements, or name a Python with other packages by --python"
        raise UsageError(f"The packages cannot be installed: {cause}", remedy)


def _setup_script() -> ModuleType:
    """Load requirements/install.py, which installs dlobd itself."""
    spec = importlib.util.spec_from_file_location("dlobd_install", shipped("requirements/install.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _cause(text: str) -> str:
    """Return uv's error as one line without its frame; of the long output of a build, begin and end."""
    error = re.split(r"(?m)^error: (?:No solution found when resolving dependencies$)?", text)[-1]
    line = " ".join(re.sub(r"(?m)^\s*cause: ", "", error).split())
    half = MAX_CAUSE_CHARACTERS // 2
    return line if len(line) <= MAX_CAUSE_CHARACTERS else f"{line[:half]} ... {line[-half:]}"
