"""TorchDistributor: a model under DistributedDataParallel, trained by a function, or by this file as the train file.

The arguments are the words `local` (on the driver) and `file`. Each rank counts its steps itself.
"""

import os
import sys

# torchrun of PyTorch 1.13 fails under Python 3.11 with its default, 0: `Std.from_str` finds no member of that value
PET = {"PET_REDIRECTS": "1", "PET_TEE": "1"}


def train(steps):
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    x = torch.randn(512, 8)
    data = TensorDataset(x, x.sum(dim=1, keepdim=True))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 1), torch.nn.Dropout(0.1)))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data))
    counted, losses = 0, []
    while counted < steps:
        for features, wanted in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(features), wanted)
            loss.backward()
            optimizer.step()
            counted += 1
            losses.append(loss.item())
        with torch.no_grad():
            model.eval()
            model(x)
            model.train()
    assert losses[-1] < losses[0]
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {counted} steps")
    dist.destroy_process_group()
    return counted


if __name__ == "__main__":
    if "LOCAL_RANK" in os.environ:
        train(48)
    else:
        from pyspark.ml.torch.distributor import TorchDistributor
        from pyspark.sql import SparkSession

        os.environ.update(PET)
        builder = SparkSession.builder
        for name, value in PET.items():
            builder = builder.config(f"spark.executorEnv.{name}", value)
        spark = builder.getOrCreate()
        distributor = TorchDistributor(num_processes=2, local_mode="local" in sys.argv, use_gpu=False)
        if "file" in sys.argv:
            distributor.run(os.path.abspath(__file__))
        else:
            assert distributor.run(train, 48) == 48
        spark.stop()
