"""The report page as HTML: one file, inert data, a policy that forbids the network, small enough."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dlobd.bundle.store import Bundle
from dlobd.report.first_screen import WORDS, first_screen
from dlobd.report.page.data import Source, document, source
from dlobd.report.page.render import INDEX_SCRIPTS, MICRO_SCRIPTS, SCRIPTS, embedded, marked, render
from tests import records
from tests.captured import NAMES, Captured
from tests.page_traces import DATA, HOSTILE, copied, hostile, long_run

LIMIT = 2_000_000

pytestmark = pytest.mark.slow


def _page(*names: str) -> str:
    return render(document([source(Bundle(DATA / name)) for name in names]))


def _data(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_one_small_file_that_loads_nothing(name: str) -> None:
    page = _page(name)
    assert len(page.encode()) <= LIMIT
    markup = re.sub(r"<script[^>]*>.*?</script>", "", page, flags=re.DOTALL)
    links = set(re.findall(r'(?:src|href)="([^"]*)"', markup))
    assert links >= {"data:,", "#main", "#summary", "#where"}
    tracking = {one["tracking_url"] for one in Captured.stored(name)["applications"]}
    assert all(link.startswith("#") for link in links - {"data:,"} - tracking)
    assert {link[1:] for link in links if link.startswith("#")} <= set(re.findall(r'id="([^"]*)"', markup))
    assert "docs/" not in markup
    assert "@import" not in markup
    assert "url(" not in markup
    assert "{%" not in markup


def test_the_policy_allows_the_pages_own_scripts_and_nothing_else() -> None:
    page = _page("native-run")
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert found
    rules = dict(rule.strip().split(" ", 1) for rule in html.unescape(found[1]).split(";"))
    assert rules["default-src"] == "'none'"
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert rules["script-src"].split() == [f"'sha256-{one}'" for one in hashes]
    assert len(scripts) == 2
    assert "unsafe-eval" not in found[1]
    assert "http" not in found[1]


def test_data_is_embedded_as_given() -> None:
    given = document([source(Bundle(DATA / "quick-run"))])
    assert _data(render(given)) == json.loads(json.dumps(given["charts"]))
    assert embedded({"a": [float("nan"), (float("inf"), 1)]}) == '{"a":["nan",["inf",1]]}'


def test_hostile_names_cannot_end_the_block(tmp_path: Path) -> None:
    bundle = copied("quick-run", tmp_path, hostile)
    page = render(document([source(bundle)]))
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    assert not re.search("[<>&\u2028\u2029]", found[1])
    assert _data(page)["runs"][0]["record"]["command"][-len(HOSTILE) :] == list(HOSTILE)
    title = re.search(r"<title>(.*?)</title>", page)
    assert title
    assert "<" not in title[1]
    assert len(page.encode()) <= LIMIT


@pytest.mark.parametrize("text", [*HOSTILE, "\ud800 half", "\x00"])
def test_any_text_is_escaped_and_read_back(text: str) -> None:
    written = embedded({"name": text})
    assert written.isascii()
    assert not set("<>&") & set(written)
    assert json.loads(written) == {"name": text}


def test_hostile_names_are_escaped_in_static_html(tmp_path: Path) -> None:
    page = render(document([source(copied("quick-run", tmp_path, hostile))]))
    markup = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page, flags=re.DOTALL)
    assert "<img" not in markup
    assert "<script" not in markup
    assert html.escape(HOSTILE[0]).replace("&#x27;", "&#39;") in markup
    assert "{{data}} {{policy}}" in markup


def test_properties_break_at_dots_and_options_never() -> None:
    shown = marked("Set dfs.client.block.write.x-y=40 & pass --py-files, not <b>.")
    name = '<span class="name">dfs.<wbr>client.<wbr>block.<wbr>write.<wbr>x-y</span>'
    assert shown == f'Set {name}=40 &amp; pass <span class="name">--py-files</span>, not &lt;b&gt;.'
    assert marked("It took 3.2 s. See logs/driver.stdout.") == "It took 3.2 s. See logs/driver.stdout."


def test_titles_distinguish_runs() -> None:
    titles = {name: re.findall(r"<title>(.*?)</title>", _page(name))[0] for name in NAMES}
    assert len(set(titles.values())) == len(NAMES)
    record = Captured.stored("quick-run")
    assert titles["quick-run"] == (
        f"softmax-mnist-quick, {record['wall_ns'] / 1e9:.1f} s, {record['started_at'][:10]} - dlobd"
    )
    assert "2 runs" in re.findall(r"<title>(.*?)</title>", _page("native-run", "quick-run"))[0]


def test_the_static_page_has_all_facts_of_the_first_screen() -> None:
    """A mail preview without scripts shows headline, layers, tiles, findings, warnings and the words."""
    page = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", _page("quick-run"), flags=re.DOTALL)
    text = html.unescape(re.sub("<[^>]*>", "", page)).replace("\u00a0", " ")
    screen = first_screen(Captured.bundle("quick-run").read())
    assert screen.headline in text
    for part in screen.layers:
        assert f"{part.title} {part.seconds} s" in text
    for tile in screen.tiles:
        assert tile.value in text
    assert screen.no_finding in text
    assert all(word in text for word in WORDS)
    for row in Captured.stored("quick-run")["layers"]:
        assert f"{row['ns'] / 1e9:.3f}" in text


def test_a_failed_run_has_its_reason_first_and_no_advice() -> None:
    page = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", _page("killed-trainer"), flags=re.DOTALL)
    reason = html.escape(Captured.stored("killed-trainer")["reason"], quote=False)
    assert page.index("The run failed") < page.index(reason) < page.index("Wall time by layer")
    assert "Remedy" not in page


def test_a_hundred_thousand_spans_fit() -> None:
    trace, attribution = long_run()
    run = records.run(findings=[])
    page = render(document([Source(run, run.to_json(), trace, attribution, None, ())]))
    assert len(page.encode()) <= LIMIT
    assert _data(page)["runs"][0]["timeline"]["spans"] == len(trace.spans)


def test_scripts_never_read_text_as_markup() -> None:
    folder = Path(__file__).parents[2] / "dlobd" / "report" / "page" / "assets"
    assert {path.name for path in folder.glob("*.js")} == {*SCRIPTS, *INDEX_SCRIPTS, *MICRO_SCRIPTS}
    for path in folder.glob("*.js"):
        banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|fetch\(|XMLHttpRequest"
        assert not re.search(banned, path.read_text()), path
