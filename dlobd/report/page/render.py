"""Rendering of the page as one HTML file with data, scripts and styles. Its policy forbids all loading.

Jinja2 renders all facts as static HTML and escapes all values; scripts add charts, sorting and the timeline. Their data
is JSON in a block that browsers do not execute. The policy allows scripts by hash, so no other code can run. Vega
interprets expressions instead of compiling them, so the policy does not allow `eval`. Inline styles are allowed, for
bars and charts; under this policy a style cannot load a resource.
"""

import base64
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib import resources
from pathlib import Path
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from dlobd import __version__
from dlobd.bundle.store import Bundle
from dlobd.layers import LAYERS
from dlobd.report import history, sentences, tables, text

SCRIPTS = ("dom.js", "tables.js", "theme.js", "specs.js", "timeline.js", "charts.js")
"""Scripts of the page of runs in their order of execution, in one scope."""

INDEX_SCRIPTS = ("dom.js", "tables.js")
"""Scripts of the page that lists runs."""

MICRO_SCRIPTS = ("dom.js", "tables.js", "theme.js", "specs.js", "micro.js")
"""Scripts of the page of micro-benchmarks."""

NAMES = re.compile(r"(?P<property>\b[a-z][\w-]{0,60}(?:\.[\w-]{1,60}){2,})|(?P<option>(?<!\S)--?[a-z][\w-]{0,60})")
"""Names of settings, and options of commands. Both are copied from the page, so they are not hyphenated."""


def render(document: Mapping[str, object]) -> str:
    """Render the view of `dlobd.report.page.data` as HTML."""
    return page("page.html", document, SCRIPTS, document["charts"])


def render_index(bundles: Sequence[Bundle], file: Path) -> str:
    """Render the list of runs as HTML, the newest first. Links are relative to the directory of `file`."""
    base, rows = file.absolute().parent, history.rows(bundles)
    days = " to ".join(dict.fromkeys(row.started_at[:10] for row in (rows[-1], rows[0]))) if rows else ""
    places = [[("bundle", Path(row.path)), ("report", Path(row.path, "report.html"))] for row in rows]
    links = [[(name, quote(os.path.relpath(path, base))) for name, path in found if path.exists()] for found in places]
    view = {
        "title": f"{len(rows)} {'run' if len(rows) == 1 else 'runs'}, {days} - dlobd" if rows else "0 runs - dlobd",
        "version": __version__,
        "heads": history.HEADS,
        "rows": list(zip(rows, links, strict=True)),
    }
    return page("index.html", view, INDEX_SCRIPTS)


def page(template: str, document: Mapping[str, object], names: Sequence[str], data: object = None) -> str:
    """Render a view with a template and scripts of the assets. With data, the page has Vega-Lite too."""
    scripts = [] if data is None else [charts()]
    scripts.append('"use strict";\n(() => {{\n{}\n}})();\n'.format("\n".join(map(_asset, names))))
    found = (
        _templates()
        .get_template(template)
        .render(
            document,
            policy=policy(scripts),
            style=Markup(_asset("page.css")),
            data=Markup(embedded(data)),
            scripts=list(map(Markup, scripts)),
        )
    )
    return re.sub("[\ud800-\udfff]", "\ufffd", found)


@cache
def _templates() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"marked": marked, "cell": tables.cell, "percent": text.percentage, "day": day, "tied": tied}
    found.filters |= {"saving": sentences.saving, "transport": sentences.transport}
    found.globals["LAYERS"] = LAYERS
    return found


def marked(value: object) -> Markup:
    """Escape a text in which names of properties break only at dots, and options never."""
    found, at = Markup(), 0
    words = str(value)
    for name in NAMES.finditer(words):
        inside = Markup("<wbr>").join(f"{part}." for part in name[0].split("."))
        found += escape(words[at : name.start()]) + Markup('<span class="name">{}</span>').format(inside[:-1])
        at = name.end()
    return found + escape(words[at:])


def tied(sentence: str) -> str:
    """Keep numbers and their units in one line."""
    return re.sub(r"(?<=\d) (?=[s%])", "\u00a0", sentence)


def day(stamp: str) -> str:
    """Format an ISO timestamp as `26 Nov 2026, 06:53 UTC`; return any other text unchanged."""
    try:
        at = datetime.fromisoformat(stamp)
    except ValueError:
        return stamp
    return f"{at.day} {at:%b %Y, %H:%M} {at.tzname() or ''}".strip()


def embedded(document: object) -> str:
    """Encode a document as JSON that is safe inside a script element."""
    # ASCII also escapes line separators, and unpaired surrogates of damaged names
    encoded = json.dumps(_finite(document), separators=(",", ":"), allow_nan=False, default=str)
    return re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", encoded)


def _finite(value: object) -> object:
    """Replace NaN and infinities, which JSON lacks, by their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value


def policy(scripts: Iterable[str]) -> str:
    """Build the Content-Security-Policy: only these scripts, and inline styles."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def charts() -> str:
    """Read Vega-Lite, Vega and Vega-Embed as one script."""
    import vl_convert

    found: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return found.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _asset(name: str) -> str:
    return resources.files("dlobd.report.page").joinpath("assets", name).read_text(encoding="utf-8")
