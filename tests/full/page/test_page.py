"""The report page in a real browser without a network: it renders, answers to mouse and keyboard, and stays inert."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from dlobd.bundle.store import Bundle
from dlobd.report.page.data import document
from dlobd.report.page.render import render
from dlobd.report.page.source import Source
from tests import records
from tests.captured import NAMES, Captured
from tests.page_traces import HOSTILE, finding, hostile, long_run

Open = Callable[..., Any]
Written = Callable[..., Path]

SECTIONS = [
    "verdict",
    "findings",
    "warnings",
    "what",
    "layers",
    "anatomy",
    "icicle",
    "timeline",
    "ranks",
    "steps",
    "training",
    "usage",
    "transport",
    "overhead",
    "tables",
    "environment",
    "reproduce",
]


def _sections(page: Page) -> list[str]:
    return [str(one.get_attribute("id")) for one in page.locator("main > section").all()]


@pytest.mark.parametrize("name", NAMES)
def test_every_section_is_there_in_order(opened: Open, written: Written, name: str) -> None:
    """Of good and failed runs, each section shows something, a chart of it is drawn, and the page is no wider than the
    window."""
    with opened(written(name)) as found:
        assert _sections(found.page) == SECTIONS
        for section in SECTIONS:
            assert found.page.locator(f"#{section}").inner_text().strip()
        for chart in found.page.locator(".chart").all():
            assert chart.locator("svg").count() == 1, chart.get_attribute("aria-label")
        assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


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


def test_the_order_of_layers_and_their_colours_are_the_tables(opened: Open, written: Written) -> None:
    """The legend has every layer with its number; parts of the bar have these colours, in this order."""
    with opened(written("quick-run")) as found:
        legend = found.page.locator("#layers .legend").first.locator("li").all_inner_texts()
        assert [text.strip() for text in legend][:3] == ["1 dlobd client", "2 YARN", "3 Spark"]
        fills = (
            found.page.locator("#layers .chart")
            .first.locator(".segment_marks path")
            .evaluate_all("all => all.map(one => one.getAttribute('fill'))")
        )
        assert [fill.lower() for fill in fills[:3]] == ["#999999", "#e69f00", "#d55e00"]


def test_qualities_of_evidence_differ_without_colour(opened: Open, written: Written) -> None:
    with opened(written("quick-run")) as found:
        chart = found.page.locator("#layers .chart").nth(1)
        fills = chart.locator(".quality_marks path").evaluate_all("all => all.map(one => one.getAttribute('fill'))")
        assert {re.sub(r"^.*-(\d)\)$", r"\1", fill) for fill in fills if fill.startswith("url")} >= {"1", "2"}
        assert any(fill.startswith("#") for fill in fills)
        assert chart.locator(".interval_marks line").count() >= 5


def _tip(page: Page, mark: Locator) -> str:
    """What the tip of a mark says. Scrolling to it comes first: a scroll that ends later would hide the tip."""
    mark.scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    mark.hover(force=True)
    return page.wait_for_selector("#tip").inner_text()


def test_hovering_a_slice_gives_its_source_and_resolution(opened: Open, written: Written) -> None:
    with opened(written("quick-run")) as found:
        slices = found.page.locator("#timeline .segment_marks path")
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
        slices = found.page.locator("#timeline .segment_marks path")
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
        page.locator("#what summary").focus()
        page.keyboard.press("Enter")
        assert page.locator("#what details").get_attribute("open") is not None


def test_tables_sort_and_are_copied_as_csv(opened: Open, written: Written) -> None:
    with opened(written("quick-run")) as found:
        section = found.page.locator("#tables section.data").first
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
        assert head_line.startswith('layer,seconds,% of wall time,"lowest, s"')
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
        label = found.page.locator("#layers .names_marks text").first
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
        label = page.locator("#layers .names_marks text").first.evaluate("e => getComputedStyle(e).fill")
        assert label == "rgb(0, 0, 0)"
        assert not page.locator("#theme").is_visible()
        assert page.pdf()[:4] == b"%PDF"


def test_hostile_names_stay_inert(opened: Open, written: Written) -> None:
    """They are shown as they are: no element is made of them, nothing is run, and the page keeps its width."""
    with opened(written("quick-run", record=hostile)) as found:
        page = found.page
        assert page.title().startswith("dlobd: ")
        assert page.locator("main img, main script, main iframe, main a[href^='http']").count() == 0
        assert HOSTILE[0] in page.locator("#findings").inner_text()
        assert HOSTILE[1] in page.locator("#reproduce pre").first.inner_text()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for section in SECTIONS:
            box = page.locator(f"#{section}").bounding_box()
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
        page.get_by_role("button", name="List the layers of the wall time in this range").click()
        assert HOSTILE[0] in page.locator("#timeline .detail").inner_text()
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_epochs_have_one_tick_each(opened: Open, written: Written) -> None:
    """Two of them are not 1, 1.5 and 2; of many some are left out."""
    for record, most in ((_with_two_epochs, 2), (_with_many_epochs, 12)):
        with opened(written("quick-run", record=record)) as found:
            axis = found.page.locator("#training .chart").first.locator(".role-axis-label").first
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
    """A finding has its saving in seconds, its setting, its evidence folded, and where to read on."""
    with opened(written("quick-run", record=_with_findings)) as found:
        section = found.page.locator("#findings")
        text = section.inner_text()
        share = 100 * 900_000_000 / Captured.stored("quick-run")["wall_ns"]
        assert f"Saves 0.8 to 0.9 s. At most {share:.1f} % of the wall time." in text
        assert "docs/findings.md#feed-poll" in text
        assert "Remedy: input = direct" in text
        assert "span join queue" not in text
        section.locator("summary").first.click()
        assert "span join queue" in section.inner_text()
        assert "Below noise: 1" in section.inner_text()


def _with_findings(record: dict[str, Any]) -> None:
    record["findings"] = [finding(), finding(above_noise=False, says="Too little.")]


def _without_findings(record: dict[str, Any]) -> None:
    record["findings"] = []


def test_no_finding_is_not_unknown(opened: Open, written: Written) -> None:
    with opened(written("quick-run", record=_without_findings)) as found:
        assert "No setting is expected" in found.page.locator("#findings").inner_text()


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
    """Every section stands, the figures are the record's, and the warnings name what is not there."""
    with opened(written("quick-run", change=change)) as found:
        assert _sections(found.page) == SECTIONS
        assert "bundle:" in found.page.locator("#warnings").inner_text()
        (spark,) = (row for row in Captured.stored("quick-run")["layers"] if row["layer"] == "spark")
        assert f"Spark {spark['ns'] / 1e9:.1f} s" in found.page.locator("#verdict").inner_text()


def _on_another_machine(record: dict[str, Any]) -> None:
    record["platform"]["processor"] = record["configuration"]["launcher"]


def test_several_runs_stand_side_by_side(opened: Open, written: Written) -> None:
    """The comparison comes after the verdicts, or why there is none; both runs are in each section."""
    with opened(written("native-run", "quick-run", record=_on_another_machine)) as found:
        assert _sections(found.page)[:2] == ["verdict", "comparison"]
        assert "different environments" in found.page.locator("#comparison").inner_text()
        left, right = (found.page.locator("#layers .run").nth(place).bounding_box() for place in (0, 1))
        assert left
        assert right
        assert left["y"] == right["y"]
        assert "launcher" in found.page.locator("#what").inner_text()


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
