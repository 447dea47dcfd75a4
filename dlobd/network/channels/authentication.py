"""How two ends of a connection prove to each other that they know the run's secret, which never travels.

    connecting end                                             listening end
                      <--- GREETING, nonce L ----------------
      GREETING, nonce C, HMAC(secret, "connect", L, C) ----->    refused here: a wrong secret, or anything else
                      <--- HMAC(secret, "listen", L, C) -----    or REFUSAL, so that the other end need not guess

Each end has chosen one of the two nonces, so that nothing recorded can be used again, and the roles differ, so that
nothing can be sent back. The secret is the key of HMAC-SHA256 (RFC 2104). An empty one proves nothing but that both
ends are of dlobd. What follows on the connection is neither encrypted nor signed.
"""

from __future__ import annotations

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

HANDSHAKE_S = 5.0
"""How long a listening end waits for a hello. It needs no work of the other one but one HMAC."""


class Refused(ChannelError):
    """The other end does not know the run's secret, or is no channel of this library."""


def nonce() -> bytes:
    """One that was never used before."""
    return secrets.token_bytes(NONCE_BYTES)


def greeting() -> bytes:
    """What a listening end says first."""
    return GREETING + nonce()


def begins_well(said: bytes | bytearray) -> bool:
    """Whether what has come so far may be the beginning of a greeting or a hello."""
    return said[: len(GREETING)] == GREETING[: len(said)]


def hello(secret: bytes, greeted: bytes) -> bytes:
    """The connecting end's answer to a greeting."""
    own = nonce()
    return GREETING + own + _proof(secret, b"connect", _nonce_of(greeted), own)


def answer(secret: bytes, greeted: bytes, said: bytes) -> bytes | None:
    """The listening end's answer to the hello that its greeting got; None if that proves no knowledge of the secret."""
    theirs, proof = _nonce_of(said), said[GREETING_BYTES:]
    if not hmac.compare_digest(proof, _proof(secret, b"connect", _nonce_of(greeted), theirs)):
        return None
    return _proof(secret, b"listen", _nonce_of(greeted), theirs)


def check(secret: bytes, greeted: bytes, said: bytes, answered: bytes, peer: str) -> None:
    """Whether the answer to a hello proves that the listening end knows the secret.

    Raises:
        Refused: it does not, or it has refused this end.
    """
    if answered == REFUSAL:
        raise Refused(f"{peer} has refused this end: its secret is not that of the run")
    expected = _proof(secret, b"listen", _nonce_of(greeted), _nonce_of(said))
    if not hmac.compare_digest(answered, expected):
        raise Refused(f"{peer} does not know the run's secret")


def report(address: str, peer: str, why: str) -> None:
    """One line on stderr for whoever was refused: one write, as other threads say the same."""
    sys.stderr.write(f"dlobd: {address}: refused {peer}: {why}\n")


def _nonce_of(said: bytes) -> bytes:
    return said[len(GREETING) : GREETING_BYTES]


def _proof(secret: bytes, role: bytes, listening: bytes, connecting: bytes) -> bytes:
    return hmac.digest(secret, b"dlobd " + role + b" " + listening + connecting, "sha256")
