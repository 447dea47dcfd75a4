"""Removes secrets from text before it is written to a bundle, so that a bundle can be shared."""

import json
import re
from collections.abc import Sequence

REDACTED = b"[redacted]"

# The value of a name that ends in one of these words is a secret. Names that only contain "token" do not count, because
# YARN's logs are full of token managers. The patterns omit the text before the word, so their time is linear in the
# text.
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
        _WORD + rb"\\\"[ \t]*:[ \t]*)(?P<value>\\\"(?:(?!\\\").)*\\\")",  # JSON that is inside a JSON string
        rb"--[\w.-]*" + _WORD + rb"[ \t]+)" + _QUOTED + rb"|" + _BARE + rb")",  # --key value
    )
]
_XML_SECRET = re.compile(rb"(?i)" + _WORD + rb"</name>\s*<value>)(?P<value>[^<]+)")
_HINTS = (b"key", b"passw", b"passphrase", b"secret", b"token", b"credential")
"""Words of lines with a secret. Lines without these words are skipped, which makes redaction ten times as fast."""


def redact(data: bytes) -> bytes:
    """Replace the values of authkeys, passwords, tokens and secrets. Quotes stay, so that JSON stays valid."""
    whole = data.lower()
    if not any(hint in whole for hint in _HINTS):
        return data  # most pieces of a large file
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
    """Replace secrets in the words of a command line, including values that follow their option as a separate word."""
    redacted: list[str] = json.loads(redact(json.dumps(list(words)).encode()))
    return redacted


def _hide(match: re.Match[bytes]) -> bytes:
    value = match["value"]
    quote = re.match(rb"[bu]?(\\?['\"])", value)
    hidden = quote[1] + REDACTED + quote[1] if quote else REDACTED
    return match[0].removesuffix(value) + hidden
