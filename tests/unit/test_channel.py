"""Parsing of an experiment's channel."""

from __future__ import annotations

import pytest

from dlobd.channel import Channel


@pytest.mark.parametrize(
    ("text", "transport", "device"),
    [
        ("tcp", "tcp", ""),
        ("tcp@enp1s0.100", "tcp", "enp1s0.100"),
        ("tcp@10.77.2.0/24", "tcp", "10.77.2.0/24"),
        ("tcp@0.0.0.0/0", "tcp", "0.0.0.0/0"),
        ("ipoib@10.77.2.5/32", "ipoib", "10.77.2.5/32"),
        ("ipoib@ib0", "ipoib", "ib0"),
        ("rdma@mlx5_0:1", "rdma", "mlx5_0:1"),
        ("shm", "shm", ""),
    ],
)
def test_a_channel_is_a_transport_and_its_device(text: str, transport: str, device: str) -> None:
    spec = Channel.parse(text)
    assert (spec.transport, spec.device) == (transport, device)
    assert str(spec) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not TRANSPORT"),
        ("@eth0", "is not TRANSPORT"),
        ("TCP", "is not TRANSPORT"),
        ("tcp@", "names no device"),
        ("tcp@eth0@eth1", "no device name"),
        ("tcp@../eth0", "no device name"),
        ("tcp@eth0,eth1", "no device name"),
        ("tcp@10.77.2.5/24", r"10\.77\.2\.5/24 is an address with a prefix; the network is 10\.77\.2\.0/24$"),
        ("ipoib@10.77.2.0/024", r"the network is 10\.77\.2\.0/24$"),
        ("tcp@10.77.2.0/33", "no IPv4 network: an address and a prefix of 0 to 32"),
        ("tcp@10.77.2.0/", "no IPv4 network"),
        ("tcp@10.77.2.0/255.255.255.0", "no IPv4 network"),
        ("tcp@fd00::/64", "no IPv4 network"),
        ("rdma@10.77.2.0/24", "a network goes with tcp and ipoib only"),
        ("shm@eth0", "shm has no device"),
    ],
)
def test_an_invalid_channel_is_an_error_of_one_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as raised:
        Channel.parse(text)
    assert repr(text) in str(raised.value)
    assert "\n" not in str(raised.value)
