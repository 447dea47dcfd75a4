"""Take the pictures of the report page that README and docs show.

    python docs/screenshots.py BUNDLE... [--name NAME] [--only PICTURE...]

Several bundles make one page. Needs Debian's chromium, and the packages of `make setup-dev`. Each picture is a part of
the page as a browser draws it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from dlobd.cli import main as dlobd

DOCS = Path(__file__).parent
CHROMIUM = "/usr/bin/chromium"
WIDTH, HEIGHT = 1100, 1900
PARTS = {
    "findings-light": ("verdict", "findings"),
    "bars-light": ("layers",),
    "bars-dark": ("layers",),
    "timeline-light": ("timeline",),
}
"""Picture to its sections, which follow each other in the page."""


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bundles", nargs="+")
    parser.add_argument("--name", default="report", help="of the pictures: docs/NAME-bars-light.png")
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=list(PARTS), help="which pictures; all")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        file = Path(directory) / "report.html"
        if code := dlobd(["report", *asked.bundles, "-o", str(file)]):
            return code
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme=scheme, viewport={"width": WIDTH, "height": HEIGHT})
            page.goto(file.as_uri())
            page.wait_for_selector("#timeline canvas, #timeline svg")
            for ending, sections in PARTS.items():
                if ending.endswith(scheme) and ending in asked.only:
                    picture(page, sections, DOCS / f"{asked.name}-{ending}.png")
        browser.close()
    return 0


def picture(page: Page, sections: tuple[str, ...], to: Path) -> None:
    """Take the picture from the top of the first section to the bottom of the last section."""
    boxes = [page.locator(f"#{section}").bounding_box() for section in sections]
    first, last = boxes[0], boxes[-1]
    assert first
    assert last
    height = min(last["y"] + last["height"] - first["y"] + 16, HEIGHT)
    clip = {"x": 0, "y": max(0, first["y"] - 8), "width": WIDTH, "height": height}
    page.screenshot(path=to, clip=clip, full_page=True)
    print(f"wrote {to}")


if __name__ == "__main__":
    raise SystemExit(main())
