"""The lines of PMI 1.1, as far as MPI's begin and end need them: what a rank may ask, and what it is answered.

    cmd=init pmi_version=1 pmi_subversion=1     cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
    cmd=get_maxes                               cmd=maxes kvsname_max= keylen_max= vallen_max= rc=0
    cmd=get_appnum                              cmd=appnum appnum=0 rc=0
    cmd=get_universe_size                       cmd=universe_size size= rc=0
    cmd=get_my_kvsname                          cmd=my_kvsname kvsname= rc=0
    cmd=put kvsname= key= value=                cmd=put_result rc=0
    cmd=get kvsname= key=                       cmd=get_result rc=0 value=, or rc=-1 for a key that nobody has put
    cmd=barrier_in                              cmd=barrier_out rc=0, once all ranks have asked
    cmd=finalize                                cmd=finalize_ack rc=0

To start further processes and to publish names are not among them. Sources: RFC 13 of the Flux framework, "Simple
Process Manager Interface v1", and what MPICH 5.0.2 asks.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator

LINE_BYTES = 4096
"""The longest line. The longest that the limits below allow is one that puts a value, of some 1400 bytes."""

LINE_S = 5.0
"""How long a rank may take to end a line that it has begun, or to take the answer."""

NAME_MAX, KEY_MAX, VALUE_MAX = 256, 64, 1024
"""The lengths of names, keys and values that ranks are told: those of MPICH's own process manager."""

KEYS = 1 << 16
"""The most that ranks may put together, 70 MB. MPICH puts a handful a rank."""


class NotPmiError(Exception):
    """What a rank says makes no sense; one line."""


class Store:
    """What ranks have put, and the answers that need nobody else. One thread calls it at a time.

    Args:
        name: of the store, `kvsname`: of one job among all, so that MPI does not mix them.
    """

    def __init__(self, name: str, ranks: int) -> None:
        self._name = name
        self._ranks = ranks
        self._values: dict[str, str] = {}

    def answer(self, asked: dict[str, str]) -> str:
        """The answer to all but barriers.

        Raises:
            NotPmiError: it is none of the questions above, or beyond the limits.
        """
        command = asked["cmd"]
        if command == "init":
            return self._init(asked)
        if command in ("put", "get"):
            return self._put(asked) if command == "put" else self._get(asked)
        fixed = {
            "get_maxes": f"cmd=maxes kvsname_max={NAME_MAX} keylen_max={KEY_MAX} vallen_max={VALUE_MAX} rc=0",
            "get_appnum": "cmd=appnum appnum=0 rc=0",
            "get_universe_size": f"cmd=universe_size size={self._ranks} rc=0",
            "get_my_kvsname": f"cmd=my_kvsname kvsname={self._name} rc=0",
            "finalize": "cmd=finalize_ack rc=0",
        }
        if command not in fixed:
            raise NotPmiError(f"it asks for {command!r:.40}, which this server does not have")
        return fixed[command]

    def _init(self, asked: dict[str, str]) -> str:
        if asked.get("pmi_version") != "1":
            raise NotPmiError(f"it speaks version {asked.get('pmi_version')!r:.40} of PMI, and this server version 1")
        return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"

    def _put(self, asked: dict[str, str]) -> str:
        key, value = self._key(asked), asked.get("value", "")
        if len(value) > VALUE_MAX or (len(self._values) >= KEYS and key not in self._values):
            raise NotPmiError(f"it puts more than {KEYS} values, or one of more than {VALUE_MAX} bytes")
        self._values[key] = value
        return "cmd=put_result rc=0 msg=success"

    def _get(self, asked: dict[str, str]) -> str:
        value = self._values.get(self._key(asked))
        return "cmd=get_result rc=-1 msg=key_not_found" if value is None else f"cmd=get_result rc=0 value={value}"

    def _key(self, asked: dict[str, str]) -> str:
        key = asked.get("key", "")
        if asked.get("kvsname") != self._name or not 0 < len(key) <= KEY_MAX:
            raise NotPmiError(f"it names no key of this job: {key!r:.40}")
        return key


def questions(connected: socket.socket) -> Iterator[dict[str, str]]:
    """What a rank asks, until it closes. It may be silent for as long as it computes.

    Raises:
        NotPmiError: a line that is too long, slow, or none.
        OSError: the rank has gone.
    """
    said = b""
    readable = select.poll()
    readable.register(connected, select.POLLIN)
    until_s = 0.0
    while True:
        line, end, rest = said.partition(b"\n")
        if end:
            said = rest
            yield _parsed(line)
            continue
        if len(said) >= LINE_BYTES:
            raise NotPmiError(f"it says a line of more than {LINE_BYTES} bytes")
        if not said:
            readable.poll()
            until_s = time.monotonic() + LINE_S
        elif not readable.poll(max(0.0, until_s - time.monotonic()) * 1000):
            raise NotPmiError(f"it did not end a line within {LINE_S:g} s")
        more = connected.recv(LINE_BYTES - len(said))
        if not more:
            return
        said += more


def reply(connected: socket.socket, answer: str) -> None:
    """One line. Raises OSError: the rank has gone, or does not take it within LINE_S."""
    connected.settimeout(LINE_S)
    connected.sendall(answer.encode("ascii", "replace") + b"\n")


def _parsed(line: bytes) -> dict[str, str]:
    """The words of a line, each NAME=VALUE; a value has no spaces."""
    try:
        words = dict(word.split("=", 1) for word in line.decode("ascii").split())
    except ValueError:
        words = {}
    if "cmd" not in words:
        raise NotPmiError("it does not speak PMI")
    return words
