"""Installs the packages of a user's job into an overlay: a directory beside the packages that the nodes have.

uv resolves the requirements against these packages at their versions, and installs only the missing packages. So an
overlay replaces no package that the nodes have: a requirement of another version is an error. An overlay is built once;
its name is the hash of the requirements and of these versions.
"""

import hashlib
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlobd.errors import SetupError, UsageError
from dlobd.paths import cache_dir, locked, shipped
from dlobd.run import packing
from dlobd.run.observer import Report
from dlobd.schema import OwnJob, Runnable

PACKAGES = "packages"
"""Directory of overlays in the cache."""

MODULES, RECORD = "lib", "packages.json"
"""Members of an overlay: its packages, and their names and versions."""

OLDEST = (3, 11)
"""Oldest Python that can record; PySpark 4.3 requires the same."""

DESCRIBE_S, INSTALL_S, MAX_CAUSE_CHARACTERS = 60.0, 1800.0, 400

_VERSION = re.compile(r"\d[\d.]*(?:(?:a|b|rc|\.post|\.dev)\d+)*(?:\+[a-z\d.]+)?")
"""A version that a constraint may have. Packages of a Linux distribution may have other versions, which uv refuses."""

_DESCRIBE = """\
import json, platform, sys
sys.path[:] = [entry for entry in sys.path if entry]
from importlib import metadata
packages = []
for one in metadata.distributions():
    if one.metadata["Name"]:
        lines = [f"Provides-Extra: {extra}" for extra in one.metadata.get_all("Provides-Extra") or ()]
        lines += [f"Requires-Dist: {requirement}" for requirement in one.requires or ()]
        packages.append([one.metadata["Name"], one.version, lines])
print(json.dumps([sys.version_info[:2], platform.python_version(), packages]))
"""

_Packages = dict[str, tuple[str, list[str]]]  # normalised name -> version, lines of its METADATA


@dataclass(frozen=True, slots=True)
class JobPython:
    """Python of a job: directory of its overlay, if any, and versions that differ from those of dlobd's Python."""

    modules: Path | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


def requirements(job: Runnable) -> list[str]:
    """Return the requirements of a job as arguments of pip."""
    if not isinstance(job, OwnJob):
        return []
    return [*job.packages, *(("-r", job.requirements) if job.requirements else ())]


def prepared(job: Runnable, report: Report, install: bool = True) -> JobPython:
    """Check the Python of a job, and build its overlay unless it exists. If `install` is False, only check that its
    packages can be installed. Raises UsageError if the interpreter cannot record, or the packages contradict each other
    or installed packages; SetupError if uv is missing, or cannot reach the package index, or cannot write."""
    words = requirements(job)
    if not isinstance(job, OwnJob) or not (job.python or words):
        return JobPython()
    version, packages = _found(job.python)
    versions = {"python": version} if job.python else {}
    if not words:
        return JobPython(None, versions)
    python, pins = job.python or sys.executable, {name: one for name, (one, _) in sorted(packages.items())}
    content = json.dumps([python, version, pins, words, job.requirements_sha256])
    directory = cache_dir() / PACKAGES / hashlib.sha256(content.encode()).hexdigest()[:16]
    with locked(directory.with_name(".lock")):
        if not directory.exists():
            report(f"installing packages, once: {' '.join(words)}")
            try:
                _build(python, packages, words, directory, install)
            except OSError as error:
                what = f"The packages cannot be written to {directory}: {error.strerror}."
                raise SetupError(what, "free disk space, or set DLOBD_CACHE") from error
        if not install:
            return JobPython(directory / MODULES, versions)
    return JobPython(directory / MODULES, versions | json.loads((directory / RECORD).read_text()))


def _found(python: str) -> tuple[str, _Packages]:
    """Return the version of an interpreter, by default that of dlobd, and the packages that a job finds on every node.
    Raises UsageError if it cannot record."""
    _, version, own = _described(sys.executable)
    if not python:
        nodes = packing.on_nodes()
        return version, {name: one for name, one in own.items() if name in nodes}
    minor, version, packages = _described(python)
    if minor < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise UsageError(f"--python {python} is Python {version}: recording needs {wanted} or later.", "name another")
    # Spark brings its PySpark, which precedes an installed one
    return version, packages | {name: own[name] for name in packing.APART & own.keys()}


def _described(python: str) -> tuple[tuple[int, ...], str, _Packages]:
    try:
        done = subprocess.run(
            [python, "-c", _DESCRIBE], capture_output=True, text=True, timeout=DESCRIBE_S, check=False
        )
        minor, version, packages = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        raise UsageError(f"--python {python} is not a Python interpreter.", "--python /usr/bin/python3") from None
    found: _Packages = {}
    for name, one, lines in packages:
        if _VERSION.fullmatch(one):
            found.setdefault(packing.normal(name), (one, lines))  # Python imports the first of equal names
    return tuple(minor), version, found


def _build(python: str, packages: _Packages, words: Sequence[str], directory: Path, install: bool) -> None:
    with tempfile.TemporaryDirectory(prefix=f"{directory.name}.", dir=directory.parent) as scratch:
        view, pins, found, new = (Path(scratch) / name for name in ("view", "pins", "found", "new"))
        pins.write_text("\n".join(f"{name}=={version}" for name, (version, _) in packages.items()))
        found.write_text("\n".join(packages))
        for name, (version, lines) in packages.items():
            entry = view / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
            entry.parent.mkdir(parents=True)
            entry.write_text("\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines, ""]))
        (new / MODULES).mkdir(parents=True)
        # --target: uv takes the packages there as installed, and checks that the new packages agree with them
        _install(python, "--dry-run", "--target", view, "--constraints", pins, *words)
        if not install:
            return
        options = ("--constraints", pins, "--excludes", found, "--compile-bytecode")
        versions = _install(python, "--target", new / MODULES, *options, *words)
        if clash := sorted(name for name in packing.APART if (new / MODULES / name).exists()):
            what = f"The packages cannot be used: {', '.join(versions)} bring another {' and '.join(clash)}."
            raise UsageError(what, "omit the package that replaces Spark's PySpark")
        (new / MODULES / ".lock").unlink(missing_ok=True)  # of uv
        (new / RECORD).write_text(json.dumps(versions))
        new.rename(directory)


def _install(python: str, *words: str | Path) -> dict[str, str]:
    """Run `uv pip install` with pip's settings; return the versions of the packages that it installs."""
    setup = runpy.run_path(str(shipped("requirements/install.py")))
    if not setup["uv_runs"]():
        raise SetupError("--with and --requirements need uv, which is not installed.", "pip install uv")
    options, variables = setup["uv_settings"]()
    command = [setup["UV"], "pip", "install", "--python", python, "--output-format=json", *options, *words]
    environment = {**variables, **os.environ}
    try:
        done = subprocess.run(command, capture_output=True, env=environment, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        raise SetupError(f"uv did not install the packages within {INSTALL_S:.0f} s.", "try again") from None
    if done.returncode == 0:
        return {change["name"]: change["version"] for change in json.loads(done.stdout)["changes"]}
    text = done.stderr.decode(errors="replace")
    cause = _cause(text)
    for pattern, why, remedy in setup["MACHINE_REASONS"]:
        if re.search(pattern, text):
            raise SetupError(f"The packages cannot be installed: {why} ({cause})", remedy)
    remedy = "change --with or --requirements, or name a Python with other packages by --python"
    raise UsageError(f"The packages cannot be installed: {cause}", remedy)


def _cause(text: str) -> str:
    """Return uv's error as one line without its frame; of the long output of a build, begin and end."""
    error = re.split(r"(?m)^error: (?:No solution found when resolving dependencies$)?", text)[-1]
    line = " ".join(re.sub(r"(?m)^\s*cause: ", "", error).split())
    half = MAX_CAUSE_CHARACTERS // 2
    return line if len(line) <= MAX_CAUSE_CHARACTERS else f"{line[:half]} ... {line[-half:]}"
