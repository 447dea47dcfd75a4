"""Search for libucp: the file in DLOBD_UCX, or the system's library if its version is supported, or package `mpich`.

UCX loads its transports when it starts, from the directory `ucx` beside libucp, where `libuct_ib` provides InfiniBand's
verbs.
"""

import ctypes.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from dlobd.errors import SetupError
from dlobd.network.channels.base import environment_variables
from dlobd.network.channels.ucx.declarations import CDEF, MAJOR

CData = Any  # object of cffi

VARIABLE = "DLOBD_UCX"  # environment variable with the path of a custom libucp.so, such as HPC-X's or MLNX_OFED's

OLDEST_SYSTEM = (1, 17)
"""Older system libraries are skipped: 1.13 has no `ucp_ep_query` for transports, and its rc endpoints failed."""

VERSION_S = 10.0  # timeout for reading the version of a libucp

_VERSION = """
import ctypes, sys
version = (ctypes.c_uint * 3)()
at = ctypes.addressof(version)
ctypes.CDLL(sys.argv[1]).ucp_get_version(*(ctypes.c_void_p(at + 4 * k) for k in range(3)))
print(*version)
"""

QUIET = {"UCX_ERROR_SIGNALS": "", "UCX_WARN_UNUSED_ENV_VARS": "n", "UCX_LOG_FILE": "stderr"}
"""Environment in which UCX is loaded: UCX logs to stderr, and sets no signal handlers, which would report every crash
of TensorFlow. UCX reads its global settings once, when it is loaded."""


@dataclass(frozen=True, slots=True)
class Library:
    """Loaded libucp. `ucp` and `ffi` are cffi's objects; `origin` is `system`, `package mpich` or DLOBD_UCX."""

    path: str
    origin: str
    version: tuple[int, int, int]
    ffi: CData
    ucp: CData

    @property
    def modules(self) -> tuple[str, ...]:
        """Transport modules in the library's directory, which it can load: cma, ib, ib_mlx5, rdmacm ..."""
        directory = Path(os.path.realpath(self.path)).parent / "ucx"
        found = (re.match(r"libuct_(\w+)\.so", path.name) for path in directory.glob("libuct_*.so*"))
        return tuple(sorted({match[1] for match in found if match}))


def load() -> Library:
    """Load the libucp for channels, once per process. Raises SetupError with all attempts if there is none."""
    return _load(os.environ.get(VARIABLE, ""))


@cache
def _load(named: str) -> Library:
    ffi = _declared()
    tried = []
    places = [("system", _of_system()), ("package mpich", _of_mpich())]
    if named:  # no silent fallback from the library in DLOBD_UCX
        places = [(VARIABLE, [named])]
    for origin, paths in places:
        for path in paths:
            try:
                if origin == "system" and (version := _version_beside(path)) < OLDEST_SYSTEM:
                    tried.append(f"{origin} {path}: version {_dotted(version)} is older than {_dotted(OLDEST_SYSTEM)}")
                    continue
                found = _loaded(ffi, path, origin)
            except OSError as error:
                tried.append(f"{origin} {path}: {error}")
                continue
            if found.version[0] == MAJOR:
                return found
            tried.append(f"{origin} {path}: version {_dotted(found.version)} is not {MAJOR}.x")
    why = "; ".join(tried) or "no libucp on this system, and no package mpich"
    raise SetupError(f"No usable UCX found: {why}.", f"pip install mpich, or set {VARIABLE}")


def describe(verbs: bool = False) -> str:
    """Describe the libucp that channels use. Raises SetupError: no libucp, or it lacks required InfiniBand verbs."""
    found = load()
    what = f"UCX {_dotted(found.version)} ({found.origin}: {found.path})"
    if verbs and "ib" not in found.modules:
        have = ", ".join(found.modules) or "none"
        raise SetupError(f"{what} has no libuct_ib; its transports: {have}.", f"set {VARIABLE} to a libucp that has it")
    return f"{what}, with {', '.join(found.modules) or 'built-in transports only'}"


@cache
def _declared() -> CData:
    """Parse the C declarations once, because this takes 0.1 s."""
    try:
        from cffi import FFI
    except ImportError as error:
        raise SetupError("The library ucx needs the Python module cffi.", "pip install cffi") from error
    ffi = FFI()
    ffi.cdef(CDEF)
    return ffi


def _loaded(ffi: CData, path: str, origin: str) -> Library:
    with environment_variables(QUIET):
        ucp = ffi.dlopen(path)
    version = ffi.new("unsigned[3]")
    ucp.ucp_get_version(version, version + 1, version + 2)
    return Library(path, origin, (version[0], version[1], version[2]), ffi, ucp)


def _version_beside(path: str) -> tuple[int, ...]:
    """Read a version in a separate process, because a process cannot load two versions of libucp. Raises OSError."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _VERSION, path],
            env={**os.environ, **QUIET},
            timeout=VERSION_S,
            check=True,
            capture_output=True,
            text=True,
        )
        return tuple(map(int, done.stdout.split()))
    except (subprocess.SubprocessError, ValueError) as error:
        raise OSError(f"the library does not report its version: {error}") from error


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _of_system() -> list[str]:
    return [name] if (name := ctypes.util.find_library("ucp")) else []


def _of_mpich() -> list[str]:
    try:
        files = metadata.files("mpich") or ()
    except metadata.PackageNotFoundError:
        return []
    return [os.path.realpath(path.locate()) for path in files if path.name.startswith("libucp.so")]
