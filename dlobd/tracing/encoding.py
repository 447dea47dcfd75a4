"""The JSON of a span's line, made more cheaply than by an encoder."""

from __future__ import annotations

import json
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any

quoted = encode_basestring_ascii

# made once: `json.dumps` makes an encoder a call, which costs as much as the encoding
encode = json.JSONEncoder(separators=(",", ":"), default=str).encode


def members(values: dict[str, Any]) -> str:
    """`values` as a JSON object. Numbers, words and lists of one word, which is nearly all there is, come without an
    encoder, which would cost more than all the rest of a span."""
    text = ""
    for name, value in values.items():
        kind = type(value)
        if kind is int:
            text += f",{quoted(name)}:{value}"
        elif kind is str:
            text += f",{quoted(name)}:{quoted(value)}"
        else:
            text += f",{quoted(name)}:{encode(value) if kind is not list else _list(value)}"
    return f"{{{text[1:]}}}"


def _list(values: list[Any]) -> str:
    if len(values) == 1 and type(values[0]) is str:
        return f"[{quoted(values[0])}]"
    return encode(values)


@lru_cache(1024)
def what(layer: str, name: str) -> str:
    """Few spans are called otherwise than one before."""
    return f'"l":{quoted(layer)},"n":{quoted(name)}'
