"""Interfaces that other processes listen on."""

from __future__ import annotations

import socket

import psutil

from dlobd.network import interfaces


def test_this_host_has_loopback() -> None:
    """By its name, its address, any address of 127/8, and the route to it."""
    loopback = interfaces.resolve("lo")[0]
    assert (loopback.type, loopback.kind) == (interfaces.LOOPBACK, "loopback")
    assert "127.0.0.1" in loopback.addresses
    for found in (
        interfaces.with_address("127.0.0.1"),
        interfaces.with_address("127.9.8.7"),
        interfaces.towards("127.0.0.1"),
    ):
        assert found == loopback
    assert interfaces.carrying("127.0.0.1", "127.0.0.1") == loopback


def test_traffic_to_an_own_address_goes_over_loopback() -> None:
    own = [
        entry.address
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family == socket.AF_INET
    ]
    for address in own:
        assert interfaces.towards(address) == interfaces.resolve("lo")[0]
        assert interfaces.carrying(address, address) == interfaces.resolve("lo")[0]
        assert interfaces.with_address(address) is not None
    assert interfaces.with_address("192.0.2.200") is None
