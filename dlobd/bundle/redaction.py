"""Secrets are removed from text on its way into a bundle, so that a bundle can be handed on."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

REDACTED = b"[redacted]"

# A name that ends in one of these words has a secret as its value. Not every name with "token" in it: YARN's logs are
# full of token managers. What comes before the word is left out of the patterns, so that they are linear in the text.
_WORD = (
    rb"(?P<key>(?:authkey|passw(?:or)?d|passphrase|secret|token|credentials?|(?:api|access|private|secret)[_.-]?key)"
)
_QUOTED = rb"(?P<value>[bu]?'(?:\\.|[^'\\\n])*'|[bu]?\"(?:\\.|[^\"\\\n])*\""
_BARE = rb"[^\s,;&<>(){}\[\]'\"\\]+"
_SECRETS = [
    re.compile(rb"(?i)" + pattern)
    for pattern in (
        _WORD + rb"['\"]?[ \t]*[=:][ \t]*)" + _QUOTED + rb"|" + _BARE + rb")",  # key=value, key: value, 'key': b'value'
        _WORD + rb"['\"][ \t]*,[ \t]*)" + _QUOTED + rb")",  # ("key", "value")
        _WORD + rb"\\\"[ \t]*:[ \t]*)(?P<value>\\\"(?:(?!\\\").)*\\\")",  # JSON inside a JSON string
        rb"--[\w.-]*" + _WORD + rb"[ \t]+)" + _QUOTED + rb"|" + _BARE + rb")",  # --key value
    )
]
_XML_SECRET = re.compile(rb"(?i)" + _WORD + rb"</name>\s*<value>)(?P<value>[^<]+)")
_HINTS = (b"key", b"passw", b"passphrase", b"secret", b"token", b"credential")
"""A line without any of these holds no secret: looking for them first makes it ten times as fast."""


def redact(data: bytes) -> bytes:
    """`data` with the values of authkeys, passwords, tokens and secrets replaced; quotes stay, so JSON stays JSON."""
    lines = data.splitlines(keepends=True)
    for at, line in enumerate(lines):
        lower = line.lower()
        if any(hint in lower for hint in _HINTS):
            for pattern in _SECRETS:
                line = pattern.sub(_hide, line)
            lines[at] = line
    data = b"".join(lines)
    return _XML_SECRET.sub(_hide, data) if b"</name>" in data else data


def redact_words(words: Sequence[str]) -> list[str]:
    """The words of a command line, with secrets replaced, also where option and value are two words."""
    found: list[str] = json.loads(redact(json.dumps(list(words)).encode()))
    return found


def _hide(match: re.Match[bytes]) -> bytes:
    value = match["value"]
    quote = re.match(rb"[bu]?(\\?['\"])", value)
    hidden = quote[1] + REDACTED + quote[1] if quote else REDACTED
    return match[0].removesuffix(value) + hidden
