"""Run a study; print its tables to stdout and write its picture to DIR as PNG and SVG.

    python analysis STUDY SERIES|RUN... [-o DIR]
    python analysis STUDY --help

SERIES is the series-KEY.json of a sweep or of repeated runs, RUN the directory of a bundle.
"""

from __future__ import annotations

import sys
from pathlib import Path

STUDIES = {
    "ar_grpc": "the studies of AR-gRPC: eager threshold, coalescing, chunks, pipelining, servers; measures, needs root",
    "accuracy": "test accuracy over time, from submit and from the first touch of the data",
    "amortisation": "fixed cost and cost per epoch of each launcher and input",
    "breakdown_by_model": "layers of the wall time by model",
    "channel_comparison": "cost of an exchange over channels, libraries, exchanges and ranks",
    "exchange_prediction": "wire time of exchanges, next to its prediction from micro-benchmarks",
    "layer_breakdown": "layers of one run, or their means over several equal runs",
    "payload_histogram": "sizes of what each model exchanges, in the classes of TF-gRPC-Bench",
    "ps_vs_allreduce": "parameter servers against all-reduces; runs its own measurements, needs root",
    "resource_use": "CPU, memory, disk, network and GPU of one run over its layers",
    "scaling": "speed-up and efficiency over workers",
    "sensitivity": "fraction of the variance that each setting of a sweep explains",
    "stack_overhead": "native runs against runs through the stack, by layer",
    "tf_grpc_bench": "published figures of TF-gRPC-Bench next to results of dlobd micro",
}

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # `analysis` is a package of the checkout
    from analysis.studies import script

    sys.exit(script.main(__doc__ or "", STUDIES))
