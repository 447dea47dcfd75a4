"""Take the pictures of the first screen of the report page: a successful run, a failed run, two runs, and the index.

    python docs/screenshots.py [--ok BUNDLE] [--failed BUNDLE] [--other BUNDLE]

The default is the captured runs of tests/data. Needs Debian's chromium, and the packages of `make setup-dev`.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from dlobd.cli import main as dlobd

DOCS = Path(__file__).parent
CAPTURED = DOCS.parent / "tests" / "data"
COLOURS = 96
STYLES: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    "narrow": {"viewport": {"width": 420, "height": 900}},
    "no-scripts": {"java_script_enabled": False},
}
"""Style of a picture -> settings of its browser."""


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ok", type=Path, default=CAPTURED / "quick-run", help="successful run")
    parser.add_argument("--failed", type=Path, default=CAPTURED / "killed-trainer", help="failed run")
    parser.add_argument("--other", type=Path, default=CAPTURED / "native-run", help="run for the comparison")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        work, runs = Path(directory), Path(directory) / "runs"
        for number, bundle in enumerate((asked.other, asked.ok, asked.failed)):
            shutil.copytree(bundle, runs / "softmax-mnist-quick" / f"20261126T1{number}4700Z-0a1b")
        commands = {
            "ok": [str(asked.ok)],
            "failed": [str(asked.failed)],
            "two": [str(asked.other), str(asked.ok)],
            "index": ["--index", str(runs)],
        }
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, words in commands.items():
            file = work / f"{name}.html"
            if code := dlobd(["report", *words, "-o", str(file)]):
                return code
            for style, settings in STYLES.items():
                page = browser.new_page(**{"viewport": {"width": 1000, "height": 900}, **settings})
                page.goto(file.as_uri())
                page.wait_for_timeout(1500)
                picture(page, DOCS / f"page-{name}-{style}.png")
                page.close()
        browser.close()
    return 0


def picture(page: Page, to: Path) -> None:
    """Take the picture of the first screen, with few colours: a few KB suffice."""
    screen = page.locator("#summary, main").last.bounding_box()
    assert screen
    size = page.viewport_size or {"width": 1000, "height": 900}
    height = min(screen["y"] + screen["height"] + 8, size["height"])
    data = page.screenshot(clip={"x": 0, "y": 0, "width": size["width"], "height": height})
    Image.open(io.BytesIO(data)).convert("RGB").quantize(COLOURS).save(to, optimize=True)
    print(f"wrote {to}")


if __name__ == "__main__":
    raise SystemExit(main())
