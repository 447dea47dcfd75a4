"""Rendering of the page as one HTML file with data, scripts and styles. Its policy forbids all loading.

The data is JSON in a block that browsers do not execute. Characters that could end the block are escaped, and the
scripts insert data as text only. The policy allows scripts by hash, so no other code can run. Vega interprets
expressions instead of compiling them, so the policy does not allow `eval`. Inline styles are allowed, because Vega sets
styles on chart elements; under this policy a style cannot load a resource.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

SCRIPTS = ("dom.js", "tables.js", "theme.js", "specs.js", "timeline.js", "sections.js", "page.js")
"""Scripts of assets/ in their order of execution, in one scope."""


def render(document: Mapping[str, object]) -> str:
    """Render the data of `dlobd.report.page.data` as HTML."""
    page = "\n".join(_asset(name) for name in SCRIPTS)
    scripts = {"charts": charts(), "page": f'"use strict";\n(() => {{\n{page}\n}})();\n'}
    parts = {
        "policy": policy(scripts.values()),
        "title": _title(document),
        "style": _asset("page.css"),
        "data": embedded(document),
        **scripts,
    }
    # one pass: inserted text must not be searched for placeholders
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


def embedded(document: Mapping[str, object]) -> str:
    """Encode a document as JSON that is safe inside a script element."""
    # ASCII also escapes line separators, and unpaired surrogates of damaged names
    text = json.dumps(_finite(document), separators=(",", ":"), allow_nan=False, default=str)
    return re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", text)


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


def _title(document: Mapping[str, object]) -> str:
    runs = document["runs"]
    assert isinstance(runs, list)
    names = dict.fromkeys(str(run["experiment"]) for run in runs)
    text = re.sub("[\ud800-\udfff]", "\ufffd", f"dlobd: {', '.join(names)}"[:200])
    return "".join(f"&#{ord(letter)};" if letter in "<>&\"'" else letter for letter in text)


def _asset(name: str) -> str:
    return resources.files("dlobd.report.page").joinpath("assets", name).read_text(encoding="utf-8")
