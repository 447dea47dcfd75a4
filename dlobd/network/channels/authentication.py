"""Mutual authentication of two ends of a connection by the run's secret, which is never transmitted.

    connecting end                                             listening end
                      <--- GREETING, nonce L ----------------
      GREETING, nonce C, HMAC(secret, "connect", L, C) ----->    rejects a wrong secret or protocol
                      <--- HMAC(secret, "listen", L, C) -----    or REFUSAL, so that the other end can report the reason

Each end chooses one of the two nonces, which prevents replay; the roles differ, which prevents reflection. The secret
is the key of HMAC-SHA256 (RFC 2104). An empty secret only proves that both ends run dlobd. The connection is neither
encrypted nor signed.
"""

import hmac
import secrets
import sys

from dlobd.network.channels.base import ChannelError

GREETING = b"dlobd channel 1\n"
NONCE_BYTES = 16
PROOF_BYTES = 32
REFUSAL = b"refused: not the run's secret\n".ljust(PROOF_BYTES)
GREETING_BYTES = len(GREETING) + NONCE_BYTES
HELLO_BYTES = GREETING_BYTES + PROOF_BYTES
HANDSHAKE_S = 5.0  # timeout of the listening end for the hello, which costs the other end a single HMAC


class Refused(ChannelError):
    """Error of a peer that does not have the run's secret, or does not speak this protocol."""


def greeting() -> bytes:
    """Return the first message of a listening end."""
    return GREETING + secrets.token_bytes(NONCE_BYTES)


def begins_well(received: bytes | bytearray) -> bool:
    """Return True if the received bytes can be the start of a greeting or a hello."""
    return received[: len(GREETING)] == GREETING[: len(received)]


def hello(secret: bytes, greeting: bytes) -> bytes:
    """Return the connecting end's reply to a greeting."""
    own = secrets.token_bytes(NONCE_BYTES)
    return GREETING + own + _proof(secret, b"connect", _nonce_of(greeting), own)


def answer(secret: bytes, greeting: bytes, hello: bytes) -> bytes | None:
    """Return the listening end's reply to a hello; None if the hello does not prove knowledge of the secret."""
    theirs, proof = _nonce_of(hello), hello[GREETING_BYTES:]
    if not hmac.compare_digest(proof, _proof(secret, b"connect", _nonce_of(greeting), theirs)):
        return None
    return _proof(secret, b"listen", _nonce_of(greeting), theirs)


def check(secret: bytes, greeting: bytes, hello: bytes, answer: bytes, peer: str) -> None:
    """Raise Refused unless the answer to a hello proves that the listening end has the secret."""
    if answer == REFUSAL:
        raise Refused(f"{peer} refused this end: the secret of this end is not the run's secret")
    expected = _proof(secret, b"listen", _nonce_of(greeting), _nonce_of(hello))
    if not hmac.compare_digest(answer, expected):
        raise Refused(f"{peer} does not have the run's secret")


def report(address: str, peer: str, why: str) -> None:
    """Log a refused peer on stderr, in a single write because other threads log too."""
    sys.stderr.write(f"dlobd: {address}: refused {peer}: {why}\n")


def _nonce_of(message: bytes) -> bytes:
    return message[len(GREETING) : GREETING_BYTES]


def _proof(secret: bytes, role: bytes, listening: bytes, connecting: bytes) -> bytes:
    return hmac.digest(secret, b"dlobd " + role + b" " + listening + connecting, "sha256")
