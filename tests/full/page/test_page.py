"""The report page in a real browser without a network: it renders, answers to mouse and keyboard, and stays inert."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from dlobd.bundle.store import Bundle
from dlobd.layers import LAYERS
from dlobd.report.first_screen import first_screen
from dlobd.report.page.data import Source, document
from dlobd.report.page.render import render, render_index
from tests import records
from tests.captured import NAMES, Captured
from tests.page_traces import HOSTILE, copied, finding, hostile, long_run

Open = Callable[..., Any]
Written = Callable[..., Path]

GROUPS = ["summary", "where", "timeline", "training", "machine", "evidence"]
PARTS = ["layers", "anatomy", "icicle", "lanes", "usage", "environment", "reproduce"]
"""Groups of the navigation, and parts of them that each captured run has."""


def _groups(page: Page) -> list[str]:
    return [str(one.get_attribute("id")) for one in page.locator("main > section").all()]


@pytest.mark.parametrize("name", NAMES)
def test_every_section_has_content_and_every_chart_is_drawn(opened: Open, written: Written, name: str) -> None:
    """Of good and failed runs; a section without content is left out, and the page is no wider than the window."""
    with opened(written(name)) as found:
        page = found.page
        assert _groups(page) == GROUPS
        links = [str(link.get_attribute("href")) for link in page.locator("nav a").all()]
        assert links == [f"#{group}" for group in GROUPS]
        parts = [str(one.get_attribute("id")) for one in page.locator("main > section > section[id]").all()]
        assert set(PARTS) <= set(parts)
        for part in parts:
            assert len(page.locator(f"#{part}").inner_text().strip().splitlines()) > 1, part
        for chart in page.locator(".chart").all():
            assert chart.locator("svg").count() == 1, chart.get_attribute("aria-label")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_word_count_has_no_empty_sections(opened: Open, written: Written) -> None:
    with opened(written("quick-run", record=_without_training)) as found:
        assert found.page.locator("#ranks, #epochs, #transport").count() == 0


def _without_training(record: dict[str, Any]) -> None:
    record |= {"ranks": [], "epochs": [], "exchange": [], "transport": None, "throughput": None}
    record["time_to_accuracy"] = None


def test_the_network_is_off_and_the_policy_forbids_it(opened: Open, written: Written) -> None:
    """What a script would load is refused by the page's policy, and no string can be run as code."""
    with opened(written("native-run")) as found:
        tried = """async () => {
            const said = [];
            for (const address of ['https://example.org/', 'http://127.0.0.1:1/', document.URL]) {
                try { await fetch(address); said.push('loaded'); } catch { said.push('refused'); }
            }
            return said;
        }"""
        assert found.page.evaluate(tried) == ["refused"] * 3
        assert any("Content Security Policy" in line for line in found.problems)
        found.problems.clear()
        found.requests.clear()


SCRIPTS = pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
NARROW = {"width": 420, "height": 900}


@SCRIPTS
def test_the_first_screen_answers_with_and_without_scripts(opened: Open, written: Written, scripts: bool) -> None:
    """Headline, stacked bar with names and seconds, tiles, layers, findings, warnings and checks are static HTML."""
    screen = first_screen(Captured.bundle("quick-run").read())
    with opened(written("quick-run"), java_script_enabled=scripts) as found:
        page = found.page
        assert page.locator("h1").inner_text().replace("\u00a0", " ") == screen.headline
        bar = page.locator("#summary .bar").first
        box = bar.bounding_box()
        assert box
        assert box["y"] + box["height"] < 400
        assert f"{screen.layers[0].title} {screen.layers[0].seconds} s" in str(bar.get_attribute("aria-label"))
        assert screen.layers[0].seconds in bar.inner_text()
        widths = bar.locator(".segment").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
        assert widths == sorted(widths, reverse=True)
        assert [one.inner_text() for one in page.locator(".tiles dt").all()] == [tile.word for tile in screen.tiles]
        assert screen.no_finding in page.locator("#summary").inner_text()
        assert page.locator("#layers tbody tr").count() >= 5
        assert page.locator("#checks").inner_text().strip()
        assert page.locator("#theme").is_visible() == scripts
        assert page.locator(".chart").first.is_visible() == scripts
        assert ("needs JavaScript" in page.locator("#timeline").inner_text()) != scripts


def test_layers_have_the_colours_of_the_registry(opened: Open, written: Written) -> None:
    with opened(written("quick-run")) as found:
        fills = found.page.locator("#summary .segment").evaluate_all(
            "all => all.map(one => getComputedStyle(one).backgroundColor)"
        )
        colours = [LAYERS[part.name].colour for part in first_screen(Captured.bundle("quick-run").read()).layers]
        expected = [f"rgb({int(c[1:3], 16)}, {int(c[3:5], 16)}, {int(c[5:7], 16)})" for c in colours if c]
        assert fills[: len(expected)] == expected


def test_qualities_of_evidence_differ_without_colour(opened: Open, written: Written) -> None:
    with opened(written("quick-run")) as found:
        page = found.page
        looks = "all => all.map(one => getComputedStyle(one).backgroundImage.split('(')[0])"
        drawn = [page.locator(f"#layers .quality .q{place}").evaluate_all(looks) for place in range(3)]
        assert [set(some) for some in drawn] == [{"none"}, {"repeating-linear-gradient"}, {"radial-gradient"}]
        assert page.locator("#layers .quality b").count() >= 2


BROKEN_WORDS = """() => {
  const found = [];
  const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const parent = node.parentElement;
    if (!parent.checkVisibility() || parent.closest("pre, svg, .long")) continue;
    for (const word of node.textContent.matchAll(/[A-Za-z]{2,60}/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((one) => Math.round(one.top)));
      const box = range.getBoundingClientRect();
      if (lines.size > 1 || (!parent.closest(".table") && box.right > innerWidth + 1)) found.push(word[0]);
    }
  }
  return found;
}"""


@SCRIPTS
@pytest.mark.parametrize("names", [("quick-run",), ("killed-trainer",), ("native-run", "quick-run")])
def test_no_word_is_broken_or_cut_on_a_narrow_screen(
    opened: Open, written: Written, names: tuple[str, ...], scripts: bool
) -> None:
    with opened(written(*names), viewport=NARROW, java_script_enabled=scripts) as found:
        found.page.locator("details:not(.record) > summary").evaluate_all("all => all.forEach(one => one.click())")
        assert found.page.evaluate(BROKEN_WORDS) == []
        assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for word in found.page.locator("#summary .segment > span").all():
            inner, outer = word.bounding_box(), word.locator("xpath=..").bounding_box()
            assert not inner or (outer and inner["x"] + inner["width"] <= outer["x"] + outer["width"] + 1)


def test_properties_break_at_dots_only(opened: Open, written: Written) -> None:
    with opened(written("quick-run", record=_with_long_property), viewport={"width": 330, "height": 900}) as found:
        names = found.page.locator("#summary .finding .name")
        parts = "one => [...one.childNodes].filter(node => node.nodeType === 3).map(node => {"
        parts += " const range = document.createRange(); range.selectNode(node);"
        parts += " return new Set([...range.getClientRects()].map(box => Math.round(box.top))).size; })"
        lines = [one.evaluate(parts) for one in names.all()]
        assert lines == [[1] * 5, [1]]
        assert len(names.first.evaluate("one => [...one.getClientRects()]")) > 1


LONG_PROPERTY = "yarn.nodemanager.linux-container-executor.cgroups.strict-resource-usage"


def _with_long_property(record: dict[str, Any]) -> None:
    record["findings"] = [finding(remedy=f"set {LONG_PROPERTY}=true, and ship fewer files by --py-files")]


LOW_CONTRAST = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => numbers(colour).slice(0, 3).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if ((numbers(colour)[3] ?? 1) > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const one = node.parentElement;
    if (!node.textContent.trim() || !one.checkVisibility() || one.closest("script, style, noscript")) continue;
    const style = getComputedStyle(one), ink = one.closest("svg") ? style.fill : style.color;
    const both = [light(ink), light(ground(one.closest("svg")?.parentElement ?? one))].sort((a, b) => b - a);
    if ((both[0] + 0.05) / (both[1] + 0.05) < 4.5) found.push([node.textContent.trim().slice(0, 40), ink]);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("names", [("quick-run",), ("killed-trainer",), ("native-run", "quick-run")])
def test_all_text_has_the_contrast_of_wcag_aa(
    opened: Open, written: Written, names: tuple[str, ...], scheme: Any
) -> None:
    with opened(written(*names, change=_edited), color_scheme=scheme) as found:
        found.page.locator("details > summary").evaluate_all("all => all.forEach(one => one.click())")
        found.page.evaluate("document.querySelectorAll('.oncolour_marks, .ondark_marks').forEach(one => one.remove())")
        assert found.page.evaluate(LOW_CONTRAST) == []


@SCRIPTS
def test_landmarks_headings_and_alternative_texts(opened: Open, written: Written, scripts: bool) -> None:
    with opened(written("native-run", "quick-run"), java_script_enabled=scripts) as found:
        page = found.page
        for role in ("banner", "navigation", "main", "contentinfo"):
            assert page.get_by_role(role).count() == 1, role
        assert page.locator("h1").count() == 1
        levels = page.locator("h1, h2, h3, h4").evaluate_all(
            "all => all.filter(one => one.checkVisibility()).map(one => Number(one.tagName[1]))"
        )
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        for image in page.locator("[role=img]").all():
            assert image.get_attribute("aria-label")
        ids = page.locator("[id]").evaluate_all("all => all.map(one => one.id)")
        assert len(ids) == len(set(ids))


def _edited(bundle: Bundle) -> None:
    record = json.loads((bundle.path / "run.json").read_text())
    record["metrics"]["test_accuracy"] = 0.99
    (bundle.path / "run.json").write_text(json.dumps(record))


@SCRIPTS
def test_a_changed_bundle_has_a_banner_at_the_top(opened: Open, written: Written, scripts: bool) -> None:
    with opened(written("quick-run", change=_edited), java_script_enabled=scripts) as found:
        banner = found.page.locator(".alert").first
        assert "run.json: changed" in banner.inner_text()
        box, head = banner.bounding_box(), found.page.locator("h1").bounding_box()
        assert box
        assert head
        assert box["y"] < head["y"]
    with opened(written("quick-run")) as found:
        assert found.page.locator(".alert").count() == 0


def _failed(record: dict[str, Any]) -> None:
    record["failure"] = {
        "phase": "training",
        "after": None,
        "file": "/jobs/raises.py",
        "line": 7,
        "traceback": [
            "Traceback (most recent call last):",
            '  File "/jobs/raises.py", line 7',
            "ValueError: bad row 2",
        ],
        "java_cause": None,
        "log": "logs/driver.stdout",
        "next_step": None,
    }


def test_a_failed_run_shows_its_cause_and_no_advice(opened: Open, written: Written) -> None:
    with opened(written("killed-trainer", record=_failed), java_script_enabled=False) as found:
        text = found.page.locator("#summary .alert").inner_text()
        for words in (Captured.stored("killed-trainer")["reason"], "training", "raises.py:7", "logs/driver.stdout"):
            assert words in text
        assert "ValueError: bad row 2" in found.page.locator("#summary pre").inner_text()
        assert found.page.locator(".finding").count() == 0


@SCRIPTS
def test_the_index_lists_runs(opened: Open, tmp_path: Path, scripts: bool) -> None:
    names = {"quick-run": "20260102T030405Z-0a1b", "killed-trainer": "20260103T030405Z-0a1b"}
    folder = tmp_path / "softmax-mnist-quick"
    bundles = [Bundle(copied(name, folder).path.rename(folder / run_id)) for name, run_id in names.items()]
    page = tmp_path / "index.html"
    page.write_text(render_index(bundles, page))
    for viewport in ({"width": 1200, "height": 800}, NARROW):
        with opened(page, java_script_enabled=scripts, viewport=viewport) as found:
            rows = found.page.locator("tbody tr")
            assert rows.count() == 2
            assert "failed" in rows.nth(0).inner_text()
            assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert found.page.locator("th button").count() == (6 if scripts else 0)
            if scripts:
                found.page.locator("th button").nth(4).click()
                walls = [float(text) for text in found.page.locator("tbody td:nth-child(5)").all_inner_texts()]
                assert walls == sorted(walls, reverse=True)
            assert found.page.evaluate(LOW_CONTRAST) == []


def _tip(page: Page, mark: Locator) -> str:
    """What the tip of a mark says. Scrolling to it comes first: a scroll that ends later would hide the tip."""
    mark.scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    mark.hover(force=True)
    return page.wait_for_selector("#tip").inner_text()


def test_hovering_a_slice_gives_its_source_and_resolution(opened: Open, written: Written) -> None:
    with opened(written("quick-run")) as found:
        slices = found.page.locator("#timeline .segment_marks rect")
        widest = slices.evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().width).reduce((b, w, i, a) => w > a[b] ? i : b, 0)"
        )
        text = _tip(found.page, slices.nth(widest))
        assert "source:" in text
        assert "known to" in text
        found.page.mouse.move(5, 5)
        found.page.wait_for_selector("#tip", state="hidden")


def test_each_event_says_what_it_unlocks(opened: Open, written: Written) -> None:
    with opened(written("quick-run")) as found:
        tip = _tip(found.page, found.page.locator("#anatomy .bar_marks path").nth(4))
        assert "unlocks: the ResourceManager can accept the application" in tip
        found.page.locator("#anatomy summary").first.click()
        assert "a container can be allocated" in found.page.locator("#anatomy table").first.inner_text()


def _range(page: Page) -> tuple[float, float]:
    host = page.locator(".timeline").first
    return float(host.get_attribute("data-low") or 0), float(host.get_attribute("data-high") or 0)


def _wait_for_other(page: Page, before: tuple[float, float]) -> tuple[float, float]:
    for _ in range(100):
        if _range(page) != before:
            return _range(page)
        page.wait_for_timeout(20)
    raise AssertionError(f"the range stays {before}")


def _wait_for(page: Page, wanted: tuple[float, float]) -> None:
    for _ in range(100):
        if _range(page) == wanted:
            return
        page.wait_for_timeout(20)
    assert _range(page) == wanted


def test_the_timeline_zooms_by_wheel_and_moves_by_drag(opened: Open, written: Written) -> None:
    with opened(written("quick-run")) as found:
        page = found.page
        box = page.locator(".timeline").first
        box.scroll_into_view_if_needed()
        at = box.bounding_box()
        assert at
        whole = _range(page)
        page.mouse.move(at["x"] + at["width"] / 2, at["y"] + 60)
        page.keyboard.down("Control")
        page.mouse.wheel(0, -400)
        page.keyboard.up("Control")
        near = _wait_for_other(page, whole)
        assert near[1] - near[0] < 0.5 * (whole[1] - whole[0])
        page.mouse.down()
        page.mouse.move(at["x"] + at["width"] / 2 - 200, at["y"] + 60, steps=4)
        page.mouse.up()
        assert _wait_for_other(page, near)[0] > near[0]
        assert page.locator("#timeline .detail table").count() == 0
        page.get_by_role("button", name="Show the whole run").click()
        _wait_for(page, whole)


def test_a_zoom_shows_what_was_drawn_together(opened: Open, written: Written) -> None:
    with opened(written("quick-run")) as found:
        page = found.page
        axis = page.locator("#timeline .role-axis-label text")
        before = axis.all_text_contents()
        whole = _range(page)
        for _ in range(4):
            was = _range(page)
            page.get_by_role("button", name="Zoom in").click()
            _wait_for_other(page, was)
        page.wait_for_timeout(200)
        assert axis.all_text_contents() != before
        assert _range(page)[1] - _range(page)[0] == pytest.approx((whole[1] - whole[0]) / 16)


def test_a_click_lists_the_spans(opened: Open, written: Written) -> None:
    with opened(written("quick-run")) as found:
        slices = found.page.locator("#timeline .segment_marks rect")
        widest = slices.evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().width).reduce((b, w, i, a) => w > a[b] ? i : b, 0)"
        )
        slices.nth(widest).click()
        detail = found.page.locator("#timeline .detail")
        assert "Spans of lane" in detail.inner_text()
        assert "source" in detail.locator("thead").inner_text()
        assert detail.locator("tbody tr").count() >= 1


def test_all_of_it_works_by_keyboard(opened: Open, written: Written) -> None:
    """The skip link comes first; the timeline zooms, moves and lists; heads sort; folded parts open."""
    with opened(written("quick-run")) as found:
        page = found.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.locator(".timeline").first.focus()
        whole = _range(page)
        page.keyboard.press("+")
        near = _wait_for_other(page, whole)
        page.keyboard.press("ArrowRight")
        assert _wait_for_other(page, near)[0] > near[0]
        page.keyboard.press("Enter")
        page.wait_for_selector("#timeline .detail table")
        page.locator(".timeline").first.focus()
        page.keyboard.press("0")
        _wait_for(page, whole)
        page.locator("#words summary").focus()
        page.keyboard.press("Enter")
        assert page.locator("#words").get_attribute("open") is not None


def test_tables_sort_and_are_copied_as_csv(opened: Open, written: Written) -> None:
    with opened(written("quick-run")) as found:
        section = found.page.locator("#layers .data").first
        head = section.locator("th button").nth(1)
        cells = section.locator("tbody tr td:nth-child(2)")
        head.click()
        down = [float(text) for text in cells.all_inner_texts()]
        assert down == sorted(down, reverse=True)
        assert section.locator("th[aria-sort=descending]").inner_text() == "seconds"
        head.click()
        assert [float(text) for text in cells.all_inner_texts()] == sorted(down)
        found.page.evaluate("() => { navigator.clipboard.writeText = async text => { window.copied = text; }; }")
        section.get_by_role("button", name="Copy as CSV").click()
        found.page.wait_for_selector("button[data-copied]")
        head_line, *lines = found.page.evaluate("window.copied").splitlines()
        assert head_line == 'layer,seconds,% of wall time,"lowest, s","highest, s","unexplained, s"'
        assert [float(line.split(",")[1]) for line in lines] == sorted(down)


@pytest.mark.parametrize(("scheme", "background"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 28)")])
@pytest.mark.parametrize("width", [1280, 420])
def test_light_and_dark_wide_and_narrow(
    opened: Open, written: Written, scheme: Any, background: str, width: int
) -> None:
    """As the system wants it; text stands out from its ground, and nothing is wider than the window."""
    with opened(written("quick-run"), color_scheme=scheme, viewport={"width": width, "height": 800}) as found:
        colours = "e => [getComputedStyle(e).backgroundColor, getComputedStyle(e).color]"
        ground, ink = found.page.locator("body").evaluate(colours)
        assert ground == background
        assert _contrast(ground, ink) > 7
        label = found.page.locator("#anatomy .names_marks text").first
        assert _contrast(ground, label.evaluate("e => getComputedStyle(e).fill")) > 7
        note = found.page.locator(".note").first.evaluate("e => getComputedStyle(e).color")
        assert _contrast(ground, note) > 4.5
        assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def _contrast(*colours: str) -> float:
    """As WCAG 2 defines it."""
    lights = []
    for colour in colours:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def test_the_theme_can_be_chosen(opened: Open, written: Written) -> None:
    with opened(written("native-run"), color_scheme="light") as found:
        button = found.page.locator("#theme")
        for name in ("light", "dark", "automatic"):
            button.click()
            assert button.inner_text() == f"Theme: {name}"
            dark = found.page.locator("body").evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(20, 23, 28)"
            assert dark == (name == "dark")


def test_a_print_is_light_and_complete(opened: Open, written: Written) -> None:
    with opened(written("quick-run"), color_scheme="dark") as found:
        page = found.page
        page.emulate_media(media="print")
        assert page.locator("body").evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
        label = page.locator("#anatomy .names_marks text").first.evaluate("e => getComputedStyle(e).fill")
        assert label == "rgb(0, 0, 0)"
        assert not page.locator("#theme").is_visible()
        assert page.pdf()[:4] == b"%PDF"


def test_hostile_names_stay_inert(opened: Open, written: Written) -> None:
    """They are shown as they are: no element is made of them, nothing is run, and the page keeps its width."""
    with opened(written("quick-run", record=hostile)) as found:
        page = found.page
        assert page.title().endswith(" - dlobd")
        assert page.locator("main img, main script, main iframe, main a:not([rel=noreferrer])").count() == 0
        assert HOSTILE[0] in page.locator("#summary").inner_text()
        assert HOSTILE[1] in page.locator("#reproduce pre").first.inner_text()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for group in GROUPS:
            box = page.locator(f"#{group}").bounding_box()
            assert box
            assert box["height"] < 6_000
        assert "aaaa" in _tip(page, page.locator("#anatomy .bar_marks path").nth(2))
        assert (page.locator("#tip").bounding_box() or {"width": 9_999})["width"] < 600


def _hostile_spans(bundle: Bundle) -> None:
    """Replace the variable part of names; a span of an unknown kind is refused before it reaches the page."""
    for path in bundle.path.glob("spans/**/*.jsonl"):
        text = path.read_text()
        for markup, name in zip(HOSTILE, ("write {model}", "write {checkpoint}", "{CREATE} NameNode"), strict=False):
            before, variable, after = re.split("[{}]", name)
            text = text.replace(f'"n":"{before}{variable}{after}"', f'"n":{json.dumps(before + markup + after)}')
        path.write_text(text)


def test_hostile_names_of_spans_stay_inert(opened: Open, written: Written) -> None:
    with opened(written("quick-run", change=_hostile_spans)) as found:
        page = found.page
        page.get_by_role("button", name="List the wall time in this range").click()
        assert HOSTILE[0] in page.locator("#timeline .detail").inner_text()
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_epochs_have_one_tick_each(opened: Open, written: Written) -> None:
    """Two of them are not 1, 1.5 and 2; of many some are left out."""
    for record, most in ((_with_two_epochs, 2), (_with_many_epochs, 12)):
        with opened(written("quick-run", record=record)) as found:
            axis = found.page.locator("#epochs .chart").first.locator(".role-axis-label").first
            shown = axis.locator("text").all_text_contents()
            assert shown[0] == "1"
            assert len(set(shown)) == len(shown)
            assert 2 <= len(shown) <= most


def _with_epochs(record: dict[str, Any], count: int) -> None:
    (one,) = record["epochs"]
    record["epochs"] = [one | {"epoch": number, "loss": 1 / number} for number in range(1, count + 1)]


def _with_two_epochs(record: dict[str, Any]) -> None:
    _with_epochs(record, 2)


def _with_many_epochs(record: dict[str, Any]) -> None:
    _with_epochs(record, 30)


def test_findings_stand_first_and_those_below_the_noise_are_folded(opened: Open, written: Written) -> None:
    """A finding has its saving in seconds, its setting, its evidence folded, and its code."""
    with opened(written("quick-run", record=_with_findings)) as found:
        section = found.page.locator("#summary")
        text = section.inner_text()
        share = 100 * 900_000_000 / Captured.stored("quick-run")["wall_ns"]
        assert f"Saves 0.8 to 0.9 s. At most {share:.0f} % of the wall time." in text
        assert "Remedy: input = direct" in text
        assert "span join queue" not in text
        section.locator(".finding summary").first.click()
        assert "Evidence of finding feed-poll" in section.inner_text()
        assert "span join queue" in section.inner_text()
        assert "Below noise: 1" in section.inner_text()


def _with_findings(record: dict[str, Any]) -> None:
    record["findings"] = [finding(), finding(above_noise=False, says="Too little.")]


def _without_findings(record: dict[str, Any]) -> None:
    record["findings"] = []


def test_no_finding_is_not_unknown(opened: Open, written: Written) -> None:
    with opened(written("quick-run", record=_without_findings)) as found:
        assert "No setting is expected" in found.page.locator("#summary").inner_text()


def _no_evidence(bundle: Bundle) -> None:
    for path in bundle.path.glob("evidence/*"):
        path.unlink()


def _half(bundle: Bundle) -> None:
    for path in [*bundle.path.glob("logs/**/*.log"), *bundle.path.glob("spans/**/*.jsonl")]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _unsealed(bundle: Bundle) -> None:
    (bundle.path / "hashes").unlink()


@pytest.mark.parametrize("change", [_no_evidence, _half, _unsealed])
def test_damaged_bundles_show_what_is_there_and_say_what_is_missing(
    opened: Open, written: Written, change: Any
) -> None:
    """Every group stands, the figures are the record's, and a banner names what is not there."""
    with opened(written("quick-run", change=change)) as found:
        assert _groups(found.page) == GROUPS
        assert "damaged or was changed" in found.page.locator(".alert").first.inner_text()
        (spark,) = (row for row in Captured.stored("quick-run")["layers"] if row["layer"] == "spark")
        assert f"Spark {spark['ns'] / 1e9:.1f} s" in found.page.locator("h1").inner_text().replace("\u00a0", " ")


def _on_another_machine(record: dict[str, Any]) -> None:
    record["platform"]["processor"] = record["configuration"]["launcher"]


def test_several_runs_are_compared_on_the_first_screen(opened: Open, written: Written) -> None:
    """Bars below each other on one axis, then the differences, then the verdict or why there is none."""
    with opened(written("native-run", "quick-run", record=_on_another_machine)) as found:
        page = found.page
        boxes = [page.locator("#summary .bar").nth(place).bounding_box() for place in (0, 1)]
        walls = [Captured.stored(name)["wall_ns"] for name in ("native-run", "quick-run")]
        left, right = (box or {"x": 0.0, "y": 0.0, "width": 0.0} for box in boxes)
        assert left["x"] == right["x"]
        assert left["y"] < right["y"]
        assert left["width"] / right["width"] == pytest.approx(walls[0] / walls[1], rel=0.02)
        text = page.locator("#summary").inner_text()
        assert text.index("Differences by layer") < text.index("No statistical verdict")
        assert "different environments" in text
        blocks = [page.locator("#layers .run").nth(place).bounding_box() for place in (0, 1)]
        assert blocks[0]
        assert blocks[1]
        assert blocks[0]["y"] == blocks[1]["y"]
        assert "launcher" in page.locator("#reproduce").inner_text()


def test_a_hundred_thousand_spans_stay_usable(opened: Open, tmp_path: Path) -> None:
    """The page is drawn, zooms, draws a few thousand slices at most, and says that it aggregates."""
    trace, attribution = long_run()
    run = records.run(findings=[])
    path = tmp_path / "report.html"
    path.write_text(render(document([Source(run, run.to_json(), trace, attribution, None, ())])))
    with opened(path) as found:
        page = found.page
        host = page.locator(".timeline").first
        assert 0 < int(host.get_attribute("data-slices") or 0) < 5_000
        assert "merges spans shorter than" in page.locator("#timeline").inner_text()
        whole = _range(page)
        page.get_by_role("button", name="Zoom in").click()
        _wait_for_other(page, whole)
        assert int(host.get_attribute("data-slices") or 0) < 5_000
