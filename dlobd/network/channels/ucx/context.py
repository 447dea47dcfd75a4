"""A UCX context for one transport and device: no other transport is among those that it may use, so that it cannot fall
back to one.

    tcp, ipoib    UCX_TLS=tcp UCX_NET_DEVICES=INTERFACE
    rdma          UCX_TLS=rc UCX_NET_DEVICES=DEVICE:PORT
    shm           UCX_TLS=posix,sysv,cma, with UCX_NET_DEVICES left as it is: there is none
"""

from __future__ import annotations

import threading
from typing import Any

from dlobd.errors import SetupError, UsageError
from dlobd.network import interfaces
from dlobd.network.channels.base import Closed
from dlobd.network.channels.ip import resolved
from dlobd.network.channels.ucx import declarations as c
from dlobd.network.channels.ucx.library import Library, load
from dlobd.network.devices import devices

TRANSPORTS = ("tcp", "ipoib", "rdma", "shm")


def settings(transport: str, device: str) -> dict[str, str]:
    """UCX's settings, without their prefix UCX_.

    Raises:
        UsageError, SetupError: the transport or its device cannot be used on this host.
    """
    if transport == "shm":
        return {"TLS": "posix,sysv,cma"}
    if transport == "rdma":
        return {"TLS": "rc", "NET_DEVICES": port(device)}
    return {"TLS": "tcp", "NET_DEVICES": _interface(transport, device)}


def port(device: str) -> str:
    """DEVICE:PORT of an RDMA device of this host; port 1 where none is named.

    Raises:
        UsageError: no device is named, or this host has no such one.
        SetupError: it has none at all.
    """
    found = [f"{one.name}:{each.number}" for one in devices() for each in one.ports]
    if not found:
        raise SetupError("This host has no RDMA device.", "dlobd doctor --require rdma, or use channel=tcp")
    if not device:
        raise UsageError("Channel rdma needs the name of its device.", f"write it as in rdma@{found[0]}")
    wanted = device if ":" in device else f"{device}:1"
    if wanted not in found:
        raise UsageError(f"This host has no RDMA port {wanted!r}.", f"choose one of {', '.join(found)}")
    return wanted


def _interface(transport: str, device: str) -> str:
    """The name of the interface, which UCX goes by."""
    interface, _ = resolved(transport, device)
    if interface.type == interfaces.LOOPBACK:
        raise SetupError(
            "UCX finds no route over loopback.",
            "name another interface, as in tcp@eth0, or use channel.library=sockets",
        )
    return interface.name


class Context:
    """Of one channel. It ends once it is closed and nobody uses it any more.

    Raises:
        UsageError, SetupError: the transport cannot be used here.
    """

    def __init__(self, transport: str, device: str) -> None:
        chosen = settings(transport, device)
        self.library: Library = load()
        self.ffi: Any = self.library.ffi
        self.ucp: Any = self.library.ucp
        self.transport = transport
        # a transport of one host has no errors to be told of, and UCX refuses to use it where they are asked for
        self.err_mode = c.ERR_MODE_NONE if transport == "shm" else c.ERR_MODE_PEER
        self.handle = self._begun(chosen)
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False

    def _begun(self, chosen: dict[str, str]) -> Any:
        ffi, ucp = self.ffi, self.ucp
        config = ffi.new("ucp_config_t *")
        self._check(ucp.ucp_config_read(ffi.NULL, ffi.NULL, config), "read its settings")
        try:
            for name, value in chosen.items():
                self._check(ucp.ucp_config_modify(config[0], name.encode(), value.encode()), f"take UCX_{name}={value}")
            params = ffi.new("ucp_params_t *")
            params.field_mask = c.PARAM_FEATURES
            params.features = c.FEATURE_TAG | c.FEATURE_RMA | c.FEATURE_WAKEUP
            context = ffi.new("ucp_context_h *")
            words = " ".join(f"UCX_{name}={value}" for name, value in chosen.items())
            self._check(ucp.ucp_init_version(1, 10, params, config[0], context), f"begin with {words}")
        finally:
            ucp.ucp_config_release(config[0])
        return context[0]

    def words(self, status: int) -> str:
        """What UCX calls a status."""
        return str(self.ffi.string(self.ucp.ucs_status_string(status)).decode())

    def _check(self, status: int, what: str) -> None:
        if status != c.OK:
            raise SetupError(f"UCX cannot {what}: {self.words(status)}.", "dlobd doctor, or use another channel")

    def enter(self) -> None:
        """One more who makes workers, or registers memory. Raises Closed."""
        with self._lock:
            if self._closed:
                raise Closed("the channel is closed")
            self._users += 1

    def leave(self) -> None:
        """Whoever has entered: nothing of it is left."""
        with self._lock:
            self._users -= 1
            self._end()

    def close(self) -> None:
        """Nobody can enter any more. May be called twice."""
        with self._lock:
            self._closed = True
            self._end()

    def _end(self) -> None:
        if self._closed and not self._users and self.handle is not None:
            self.ucp.ucp_cleanup(self.handle)
            self.handle = None
