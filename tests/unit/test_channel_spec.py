"""What an experiment may say of its channel."""

from __future__ import annotations

import pytest

from dlobd.network.channels.spec import ChannelSpec


@pytest.mark.parametrize(
    ("text", "transport", "device"),
    [
        ("tcp", "tcp", ""),
        ("tcp@eth0", "tcp", "eth0"),
        ("tcp@enp1s0.100", "tcp", "enp1s0.100"),
        ("ipoib@ib0", "ipoib", "ib0"),
        ("rdma@mlx5_0:1", "rdma", "mlx5_0:1"),
        ("rdma@rxe0", "rdma", "rxe0"),
        ("shm", "shm", ""),
    ],
)
def test_a_channel_is_a_transport_and_its_device(text: str, transport: str, device: str) -> None:
    """And is written as it was read."""
    spec = ChannelSpec.parse(text)
    assert (spec.transport, spec.device) == (transport, device)
    assert str(spec) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not TRANSPORT"),
        ("@eth0", "is not TRANSPORT"),
        ("TCP", "is not TRANSPORT"),
        ("tcp eth0", "is not TRANSPORT"),
        ("tcp@", "names no device"),
        ("tcp@eth0@eth1", "no name of a device"),
        ("tcp@eth 0", "no name of a device"),
        ("tcp@../eth0", "no name of a device"),
        ("tcp@eth0,eth1", "no name of a device"),
        ("shm@eth0", "shm has no device"),
    ],
)
def test_what_is_no_channel_is_answered_in_one_line(text: str, why: str) -> None:
    """It repeats what was written, and says why."""
    with pytest.raises(ValueError, match=why) as raised:
        ChannelSpec.parse(text)
    assert repr(text) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_unknown_transport_is_for_the_registry_to_refuse() -> None:
    """Its words name the nearest."""
    assert ChannelSpec.parse("infiniband@ib0").transport == "infiniband"
