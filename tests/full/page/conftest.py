"""Chromium in an empty network namespace, where nothing can be reached: without either the tests skip, and say why."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from dlobd.bundle.store import Bundle
from dlobd.report.page.data import document, source
from dlobd.report.page.render import render
from tests.page_traces import copied

CHROMIUM = shutil.which("chromium")

NO_NETWORK = ("unshare", "--net") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--net")
"""The words before a command that then has no network, not even a loopback that is up."""


@dataclass
class Opened:
    """A page in a browser, and what came of it that must not: messages, and requests but for its own file."""

    page: Page
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Nothing went wrong, and nothing was asked for."""
        assert self.problems == []
        assert self.requests == []
        assert self.page.locator(".chart .bad").all_text_contents() == []


Open = Callable[..., Any]


def _namespace() -> str:
    """Why there is no empty network namespace; empty if there is one."""
    try:
        done = subprocess.run([*NO_NETWORK, "cat", "/proc/net/dev"], capture_output=True, text=True, timeout=20)
    except OSError as error:
        return f"unshare: {error.strerror}"
    if done.returncode:
        return f"no network namespace: {done.stderr.strip()}"
    interfaces = [line.split(":")[0].strip() for line in done.stdout.splitlines()[2:]]
    assert interfaces == ["lo"]
    return ""


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Debian's package chromium is not installed")
    if why := _namespace():
        pytest.skip(why)
    start = tmp_path_factory.mktemp("browser") / "chromium"
    start.write_text(f'#!/bin/sh\nexec {shlex.join(NO_NETWORK)} -- {shlex.quote(CHROMIUM)} "$@"\n')
    start.chmod(0o755)
    with sync_playwright() as playwright:
        # the browser's own sandbox needs what a container does not have, and what it reads here is our own file
        found = playwright.chromium.launch(executable_path=str(start), args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser: Browser) -> Open:
    """Opens a file, waits until its charts are drawn, if any, and checks at the end that nothing went wrong."""

    @contextmanager
    def opening(path: Path, **settings: Any) -> Iterator[Opened]:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        page = context.new_page()
        found = Opened(page)
        page.on("console", lambda message: found.problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: found.problems.append(str(error)))
        page.on("dialog", lambda dialog: found.problems.append("a dialog"))
        address = path.resolve().as_uri()
        page.on("request", lambda request: request.url == address or _note(found.requests, request.url))
        page.goto(address)
        if settings.get("java_script_enabled", True) and page.locator("#data").count():
            page.wait_for_selector("html[data-ready=yes]", timeout=30_000)
        yield found
        found.check()
        context.close()

    return opening


def _note(requests: list[str], url: str) -> None:
    if not url.startswith("data:"):
        requests.append(url)


Written = Callable[..., Path]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Makes a page of captured bundles, copies of which may be changed."""
    pages: dict[Any, Path] = {}

    def write(*names: str, change: Callable[[Bundle], None] | None = None, record: Any = None) -> Path:
        key = (names, change, record)
        if key not in pages:
            folder = tmp_path_factory.mktemp("page")
            bundles = [copied(name, folder, record) for name in names]
            for bundle in bundles if change else ():
                assert change
                change(bundle)
            pages[key] = folder / "report.html"
            pages[key].write_text(render(document([source(bundle) for bundle in bundles])), encoding="utf-8")
        return pages[key]

    return write
