"""Channel, library and exchange of an experiment: valid combinations and error messages."""

from __future__ import annotations

import pytest

from dlobd.errors import UsageError
from dlobd.experiment import channels, files

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
        ("channel=tcp@10.77.2.5/24", "the network is 10.77.2.0/24"),
        ("channel.library=socket", "Unknown library 'socket'; did you mean 'sockets'?"),
        (
            "channel.library=sockets",
            "library sockets cannot carry it: exchange tf-ring over channel tcp",
        ),
        ("exchange=rign", "Unknown exchange 'rign'; did you mean 'ring'?"),
        ("exchange_servers=2", "has no effect with exchange tf-ring"),
        ("exchange=tf-ps exchange_servers=3", "exchange_servers 3 exceed workers 2: each worker has at most one."),
        ("exchange=ps-async optimiser=momentum momentum=0.9", "optimiser momentum does not go with exchange ps-async"),
        ("exchange=ps-async weight_decay=0.001", "its ranks take plain steps of SGD"),
        ("exchange=ps-async max_seconds=5", "do not agree on when to end"),
        ("exchange=ps-async channel.library=mpi", "exchange ps-async over channel tcp goes by sockets"),
        ("exchange_fusion_mb=0", "must be between 1 and 1024"),
        ("channel=rdma@mlx5_0:1", "exchange tf-ring cannot go over channel rdma: it needs tcp or ipoib."),
        ("planes=everything", "Unknown plane 'everything'"),
    ],
)
def test_an_invalid_combination_is_an_error(setting: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        files.load(MAIN, setting.split())
    assert words in str(error.value)
    assert setting.split()[-1].partition("=")[0].replace(".", "_") in str(error.value).replace(".", "_")
