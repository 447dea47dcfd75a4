"""Parsing of an experiment's channel, and valid combinations of channel, library and exchange."""

from __future__ import annotations

import pytest

from dlobd.channel import Channel
from dlobd.errors import UsageError
from dlobd.experiment import channels, files


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
        ("tcp@", "has no device"),
        ("tcp@eth0@eth1", "not a device name"),
        ("tcp@../eth0", "neither a device name"),
        ("tcp@eth0,eth1", "not a device name"),
        ("tcp@10.77.2.5/24", r"10\.77\.2\.5/24 is an address with a prefix; write the network, 10\.77\.2\.0/24$"),
        ("ipoib@10.77.2.0/024", r"write the network, 10\.77\.2\.0/24$"),
        ("tcp@10.77.2.0/33", r"nor an IPv4 network such as 10\.77\.2\.0/24, with a prefix of 0 to 32$"),
        ("tcp@10.77.2.0/", "nor an IPv4 network"),
        ("tcp@10.77.2.0/255.255.255.0", "nor an IPv4 network"),
        ("tcp@fd00::/64", "nor an IPv4 network"),
        ("rdma@10.77.2.0/24", "only tcp and ipoib accept a network"),
        ("shm@eth0", "shm has no device"),
    ],
)
def test_an_invalid_channel_is_an_error_of_one_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as raised:
        Channel.parse(text)
    assert repr(text) in str(raised.value)
    assert "\n" not in str(raised.value)


MAIN = "softmax-mnist"


@pytest.mark.parametrize(
    ("settings", "library"),
    [
        ([], "tensorflow"),
        (["exchange=ring"], "sockets"),
        (["exchange=ring", "channel.library=grpc"], "grpc"),
        (["exchange=halving-doubling", "channel=ipoib@ib0"], "sockets"),
        (["channel=ipoib@ib0"], "tensorflow"),
        (["channel=tcp@10.77.2.0/24"], "tensorflow"),
        (["exchange=ring", "channel=ipoib@10.77.2.0/24"], "sockets"),
    ],
)
def test_a_library_follows_from_exchange_and_channel(settings: list[str], library: str) -> None:
    found = files.load(MAIN, settings)
    assert channels.library(found) == library


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("channel=tpc", "Unknown channel 'tpc'; did you mean 'tcp'?"),
        ("channel=tcp@10.77.2.5/24", "write the network, 10.77.2.0/24"),
        ("channel.library=socket", "Unknown library 'socket'; did you mean 'sockets'?"),
        ("channel.library=sockets", "library sockets is not possible: exchange tf-ring over channel tcp"),
        ("exchange=rign", "Unknown exchange 'rign'; did you mean 'ring'?"),
        ("exchange_servers=2", "has no effect with exchange tf-ring"),
        ("exchange=tf-ps exchange_servers=3", "exchange_servers 3 exceeds workers 2: each worker runs at most one"),
        ("exchange=ps-async optimiser=momentum momentum=0.9", "momentum is not possible with exchange ps-async"),
        ("exchange=ps-async weight_decay=0.001", "it supports only plain SGD"),
        ("exchange=ps-async max_seconds=5", "only plain SGD without early stopping"),
        ("exchange=ps-async channel.library=mpi", "exchange ps-async over channel tcp needs sockets"),
        ("exchange_fusion_mb=0", "must be between 1 and 1024"),
        ("channel=rdma@mlx5_0:1", "exchange tf-ring cannot use channel rdma: it needs tcp or ipoib."),
        ("planes=everything", "Unknown plane 'everything'"),
    ],
)
def test_an_invalid_combination_is_an_error(setting: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        files.load(MAIN, setting.split())
    assert words in str(error.value)
    assert setting.split()[-1].partition("=")[0].replace(".", "_") in str(error.value).replace(".", "_")
