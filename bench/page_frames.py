"""Measure the longest tasks of Chromium's main thread while a report page is opened, scrolled and zoomed.

    python -m bench.page_frames report.html

A frame is late by the task that holds the main thread. Times are those of the browser's own trace: CPU time of the
thread, which does not depend on the load of the machine, and wall time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

TURNS = 30
"""Turns of the wheel per part."""

TASK = "RunTask"
"""Event of Chromium's trace: a task of a thread."""


class Part(NamedTuple):
    """Tasks of the main thread during a part of the measurement; times in ms."""

    name: str
    tasks: int
    longest_cpu_ms: float
    longest_ms: float


def measure(browser: Browser, path: Path) -> list[Part]:
    """Open a page, scroll it to its end and back, zoom into its timeline and out again, and move it."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})

    def load() -> None:
        page.goto(path.resolve().as_uri())
        page.wait_for_selector("html[data-ready=yes]")

    found = [_traced(browser, page, "open", load)]
    page.mouse.move(640, 450)
    found.append(_traced(browser, page, "scroll", lambda: _wheel(page, page.evaluate("document.body.scrollHeight"))))
    host = page.locator(".timeline").first
    host.evaluate("one => scrollTo(0, one.getBoundingClientRect().top + scrollY - 100)")
    page.mouse.move(640, 160)
    page.keyboard.down("Control")
    found.append(_traced(browser, page, "zoom", lambda: _wheel(page, -3_000)))
    page.keyboard.up("Control")
    page.get_by_role("button", name="Zoom in").first.click()
    found.append(_traced(browser, page, "drag", lambda: _drag(page)))
    page.close()
    return found


def _wheel(page: Page, pixels: float) -> None:
    """Turn the wheel in steps by a distance, and back."""
    for step in (pixels / TURNS, -pixels / TURNS):
        for _ in range(TURNS):
            page.mouse.wheel(0, step)
            page.wait_for_timeout(60)


def _drag(page: Page) -> None:
    page.mouse.down()
    for turn in range(2 * TURNS):
        page.mouse.move(640 + 400 * (1 - abs(TURNS - turn) / TURNS), 160)
        page.wait_for_timeout(60)
    page.mouse.up()


def _traced(browser: Browser, page: Page, name: str, act: Callable[[], object]) -> Part:
    browser.start_tracing(
        page=page, categories=["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]
    )
    act()
    page.wait_for_timeout(300)
    events = json.loads(browser.stop_tracing())["traceEvents"]
    main = {
        (e["pid"], e["tid"]) for e in events if e.get("name") == "thread_name" and e["args"]["name"] == "CrRendererMain"
    }
    tasks = [e for e in events if e.get("name") == TASK and (e["pid"], e["tid"]) in main]
    longest = (max((e.get(key, 0) / 1e3 for e in tasks), default=0.0) for key in ("tdur", "dur"))
    return Part(name, len(tasks), *longest)


def main() -> int:
    """Parse the arguments, and print a line per part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("page", type=Path)
    asked = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for part in measure(browser, asked.page):
            longest = f"{part.longest_cpu_ms:7.1f} ms of CPU, {part.longest_ms:7.1f} ms"
            print(f"{part.name:8} {part.tasks:6} tasks, longest {longest}")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
