"""Installs locked requirements into this Python's environment, with visible progress and failures in one line.

Usage: python requirements/install.py LOCK...
       python requirements/install.py -- OPTION...

Lock files are installed one after the other by the uv of `uv.lock`, in less than half of pip's time, or by pip if uv is
not available or fails. Standard library only, because this script runs before any package is installed.
"""

import ast
import fcntl
import os
import re
import subprocess
import sys
import time
from pathlib import Path

LOG = Path(sys.prefix) / "setup.log"
UV = Path(sys.prefix) / "bin" / "uv"
UV_LOCK = "uv.lock"
BUILD_CONFIG = Path(__file__).resolve().with_name("build.cfg")

CHECKSUM = "a downloaded file has a wrong checksum"
ABSENT = "the package index lacks a package for this Python"
NO_INDEX = "the package index is not reached, or lacks a package"
UNREACHABLE = (
    "NewConnectionError|NameResolutionError|Name or service not known|Temporary failure in name resolution"
    "|Network is unreachable|ConnectTimeout|ReadTimeout|ProxyError|MaxRetryError|IncompleteRead"
    "|error sending request|Request failed after"
)
MACHINE_REASONS = (
    # pattern of pip's or uv's output, its meaning for the user, and the next step
    ("DO NOT MATCH THE HASHES|Hash mismatch for", CHECKSUM, "run it again; if it stays, do not install it"),
    ("No space left on device", "the disk is full", "free 4 GB and run it again"),
    ("Permission denied", "a file cannot be written", "make this directory yours and run it again"),
    (UNREACHABLE, "the package index cannot be reached", "check the network or PIP_INDEX_URL, and run it again"),
)
REASONS = (
    *MACHINE_REASONS,
    ("from versions: none|was not found in", NO_INDEX, "check the network or PIP_INDEX_URL"),
    ("No matching distribution found|No solution found", ABSENT, "read the log"),
)

SETTINGS = {
    # setting of pip (by variables and files), and uv's variable for it
    "cache-dir": "UV_CACHE_DIR",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "no-cache-dir": "UV_NO_CACHE",
    "proxy": "ALL_PROXY",
    "retries": "UV_HTTP_RETRIES",
    "timeout": "UV_HTTP_TIMEOUT",
    "trusted-host": "UV_INSECURE_HOST",
}


def main(arguments: list[str]) -> int:
    """Install under a lock, so that a second `make` waits. Return the exit code."""
    with (Path(sys.prefix) / ".setup-lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        LOG.write_text("")
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        environment.setdefault("DIST_EXTRA_CONFIG", str(BUILD_CONFIG))
        for words in [arguments[1:]] if arguments[0] == "--" else [["-r", lock] for lock in arguments]:
            code = install(words, environment)
            if code:
                return code
    return 0


def install(words: list[str], environment: dict[str, str]) -> int:
    """Install a lock file (-r LOCK), or install with the given options. Return the exit code."""
    what, start_s = " ".join(words).removeprefix("-r "), time.monotonic()
    # Lock files name all packages. sdists are built with the packages of build.lock, not with the latest packages.
    words = [*words, "--no-deps", "--no-build-isolation", *(["--require-hashes"] if "-r" in words else [])]
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    if Path(what).name == UV_LOCK:
        code, said = attempt([*pip, "--only-binary=:all:", *words], environment)
        if code and reason(said)[0] in (ABSENT, NO_INDEX):
            print("uv is not available for this machine; pip installs instead, which takes longer", file=sys.stderr)
            return 0
    else:
        by_uv = uv_runs()
        code, said = attempt_uv(words, environment) if by_uv else attempt([*pip, *words], environment)
        if code and by_uv and reason(said)[0] != CHECKSUM:
            print(f"uv did not install {what} ({reason(said)[0]}): pip tries", file=sys.stderr)
            code, said = attempt([*pip, *words], environment)
    if code:
        why, remedy = reason(said)
        print(f"dlobd: {what} was not installed: {why}. Next: {remedy} (log: {LOG}).", file=sys.stderr)
        return 3
    print(f"installed {what} in {time.monotonic() - start_s:.0f} s", file=sys.stderr)
    return 0


def uv_runs() -> bool:
    """Return True if uv runs on this machine; install it if needed."""
    try:
        return subprocess.run([UV, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def attempt_uv(words: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Install with uv, which gets pip's settings unless its own are set. Return exit code and output."""
    options, variables = uv_settings()
    command = [str(UV), "pip", "install", "--python", sys.executable, *options]
    # Compile at once and on all cores: otherwise the first run would compile during its measured time.
    command += ["--compile-bytecode"] if "-r" in words else []
    return attempt([*command, *words], {**variables, **environment})


def uv_settings() -> tuple[list[str], dict[str, str]]:
    """Return options and environment variables by which uv has pip's settings."""
    settings = pip_settings()
    translated = {variable: settings[name] for name, variable in SETTINGS.items() if name in settings}
    if "UV_FIND_LINKS" in translated:
        translated["UV_FIND_LINKS"] = ",".join(translated["UV_FIND_LINKS"].split())
    # directory beside pip's own files
    if "UV_CACHE_DIR" in translated:
        translated["UV_CACHE_DIR"] += "/uv"
    # pip also takes certificates from these variables, otherwise, if it is new enough, from the system
    for name in ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        if os.environ.get(name):
            translated.setdefault("SSL_CERT_FILE", os.environ[name])
    translated.setdefault("UV_SYSTEM_CERTS", "true")
    # Hashes identify the file, so any index may deliver it.
    options = ["--index-strategy=unsafe-best-match", "--no-progress", "--color=never"]
    options += ["--no-index"] if settings.get("no-index", "0").lower() in ("1", "true", "yes", "on") else []
    return options, translated


def pip_settings() -> dict[str, str]:
    """Return pip's settings (name -> value) for `pip install`, from its variables and files."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    text = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout
    found = re.findall(r"(?m)^(global|install|:env:)\.([\w-]+)=(.*)$", text)
    order = ("global", "install", ":env:")
    return {name: str(ast.literal_eval(value)) for _, name, value in sorted(found, key=lambda row: order.index(row[0]))}


def attempt(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run pip or uv, log its output, and show its progress; return exit code and output."""
    lock = Path(command[command.index("-r") + 1]).read_text() if "-r" in command else ""
    wanted = len(re.findall(r"(?m)^[\w.-]+==", lock))
    start_s, seen, moving, said = time.monotonic(), 0, sys.stderr.isatty(), []
    tool = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    )
    try:
        with LOG.open("a") as log:
            for line in tool.stdout or ():
                log.write(line)
                said.append(line)
                match = re.match(
                    r"\s*(Collecting|Resolved|Downloading|Building|Built|Prepared|Install\w+) (.{1,50})", line
                )
                if match:
                    seen += match[1] == "Collecting"
                    count = f" ({seen} of at most {wanted})" if match[1] == "Collecting" else ""
                    count += ", compiling" if match[1] == "Installed" and "--compile-bytecode" in command else ""
                    text = f"[{time.monotonic() - start_s:4.0f} s] {match[1]} {match[2].strip()}{count}"[:78]
                    print(f"\r\x1b[2K{text}" if moving else f"{text}\n", end="", file=sys.stderr, flush=True)
        return tool.wait(), "".join(said)
    finally:
        if tool.poll() is None:
            tool.terminate()
            tool.wait()
        if moving:
            print("\r\x1b[2K", end="", file=sys.stderr)


def reason(said: str) -> tuple[str, str]:
    """Return the reason why pip or uv failed, and the next step."""
    for pattern, why, remedy in REASONS:
        if re.search(pattern, said):
            return why, remedy
    errors = re.findall(r"(?mi)^ERROR: (.{1,200})", said)
    return (errors[0].rstrip(".") if errors else "it failed"), "read the log"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
