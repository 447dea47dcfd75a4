"""A script finds the same process under dlobd's runner of own scripts and under `python SCRIPT`, as Spark starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ENTRY = Path(__file__).parents[2] / "jobs" / "user.py"

PROBE = """\
import sys
first_modules = set(sys.modules)
import atexit, builtins, faulthandler, gc, json, locale, logging, os, resource, signal, socket, threading, warnings
from dataclasses import dataclass, fields

@dataclass
class Settings:
    rows: int = 1

def hinted(rows: int) -> float: ...

def depth(n=1):
    try:
        return depth(n + 1)
    except RecursionError:
        return n

with warnings.catch_warnings(record=True) as caught:
    import beside
    exec("1 is 1", {})
found = {
    "annotations": [repr(fields(Settings)[0].type), repr(hinted.__annotations__)],
    "flags of the code": sys._getframe().f_code.co_flags,
    "file of the code": sys._getframe().f_code.co_filename,
    "names of __main__": sorted(name for name in globals() if name.startswith("__")),
    "values of __main__": [__name__, __doc__, __package__, __spec__, __cached__, __file__, repr(__builtins__)],
    "loader": [type(__loader__).__name__, __loader__.name, __loader__.path],
    "module": sys.modules["__main__"].__dict__ is globals(),
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "path": sys.path,
    "directory": os.getcwd(),
    "environment": dict(os.environ),
    "umask": (mask := os.umask(0), os.umask(mask))[0],
    "limits": [resource.getrlimit(n) for n in (resource.RLIMIT_AS, resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)],
    "warnings": [repr(warnings.filters), sys.warnoptions, [(w.filename, w.lineno, str(w.message)) for w in caught]],
    "logging": [logging.root.level, repr(logging.root.handlers), sorted(logging.root.manager.loggerDict)],
    "signals": {int(n): repr(signal.getsignal(n)) for n in signal.valid_signals()},
    "blocked signals": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
    "hooks": [repr(getattr(sys, name)) for name in ("displayhook", "unraisablehook")],
    "excepthook": sys.excepthook is sys.__excepthook__,
    "tracers": [sys.gettrace(), sys.getprofile(), faulthandler.is_enabled()],
    "recursion limit": sys.getrecursionlimit(),
    "collector": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
    "threads": [repr(type(thread)) for thread in threading.enumerate()],
    "builtins": sorted(dir(builtins)),
    "locale": locale.setlocale(locale.LC_ALL),
    "timeout": socket.getdefaulttimeout(),
    "stubs": ["pkg_resources" in first_modules, "jobs" in first_modules],
    "finder": beside.loader,
}
atexit.register(lambda: print("exit handler", logging.getLogger("x").name))
print(json.dumps(found | {"depth": depth()}, default=str))
"""

BESIDE = '''\
"""A module with a deprecation, and a use of `runpy`."""
import importlib.util
import runpy
import warnings

warnings.warn("beside is deprecated", DeprecationWarning, stacklevel=2)
loader = [runpy.run_module("asked")["answer"], importlib.util.find_spec("asked").loader.get_filename("asked")]
'''


def both_ways(tmp_path: Path, text: str, *arguments: str, **environment: str) -> list[subprocess.CompletedProcess[str]]:
    """Run a script plainly, and then under dlobd's runner."""
    folder = tmp_path / "mine"
    folder.mkdir(exist_ok=True)
    script = folder / "script.py"
    for name, content in (("script", text), ("beside", BESIDE), ("asked", "answer = 42\n")):
        (folder / f"{name}.py").write_text(content)
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    ways = ([], [str(ENTRY), "tfos", str(tmp_path / "spans")])
    return [
        subprocess.run(
            [sys.executable, *way, str(script), *arguments],
            capture_output=True,
            text=True,
            timeout=110,
            cwd=tmp_path,
            env=variables,
        )
        for way in ways
    ]


@pytest.mark.parametrize("variable", [{}, {"PYTHONSAFEPATH": "1"}, {"PYTHONWARNINGS": "always"}])
def test_a_script_finds_the_same_process(tmp_path: Path, variable: dict[str, str]) -> None:
    variable = {"PYTHONPATH": str(tmp_path / "mine"), **variable}
    plain, recorded = both_ways(tmp_path, PROBE, "--a", "b c", **variable)
    assert plain.returncode == recorded.returncode == 0, plain.stderr + recorded.stderr
    assert plain.stderr == recorded.stderr
    (found, last), (own, own_last) = (done.stdout.splitlines() for done in (plain, recorded))
    expected: dict[str, Any] = json.loads(found)
    seen: dict[str, Any] = json.loads(own)
    # dlobd's frames are below those of the script
    assert 0 <= expected.pop("depth") - seen.pop("depth") <= 5
    assert seen == expected
    assert last == own_last == "exit handler x"


ENDS = {
    "code": "import sys; sys.exit(3)",
    "text": "raise SystemExit('no data')",
    "nothing": "raise SystemExit",
    "error": "def f():\n    raise ValueError\ntry:\n    f()\nexcept ValueError as e:\n    raise KeyError(1) from e",
    "syntax": "x = 1\ny = (",
    "import": "import broken",
    "Ctrl-C": "raise KeyboardInterrupt",
    "SIGTERM": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "own hook": "import sys\nsys.excepthook = lambda k, e, t: print('mine', k, t.tb_lineno, t.tb_next)\n1 / 0",
    "broken hook": "import sys\nsys.excepthook = None\n1 / 0",
    "last error": "import atexit, sys\natexit.register(lambda: print(sys.last_traceback.tb_lineno))\n1 / 0",
    "thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='t')\nt.start()\nt.join()",
    "threads": "import threading\n[t.join(5) for t in threading.enumerate() if t is not threading.current_thread()]",
    "closed": "import os; os.close(1); os.close(0)",
    "directory": "import os; os.chdir('/'); import beside; print(beside.loader)",
    "spawned": (
        "import multiprocessing as m\ndef f(n): return n + 1\n"
        "if __name__ == '__main__':\n    with m.get_context('spawn').Pool(1) as p:\n        print(p.map(f, [1]))"
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_script_ends_alike(tmp_path: Path, how: str) -> None:
    """Exit code or signal, output and traceback, frame by frame, also of an error in an imported module."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "broken.py").write_text("import json.tool\n\nraise OSError('no file')\n")
    plain, recorded = both_ways(tmp_path, ENDS[how])
    assert (recorded.returncode, recorded.stdout) == (plain.returncode, plain.stdout)
    if how != "broken hook":  # Python prints the original traceback after its own complaint
        assert recorded.stderr == plain.stderr
    if how == "Ctrl-C":
        assert plain.returncode == -signal.SIGINT
