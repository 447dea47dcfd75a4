"""Micro-benchmarks of channels and exchanges: two ends, parameter servers, or ranks, without a training job.

    payload ─► plan ─► end ─► loops, calls, ranks      one process of a launch: connects, measures, reports
                 │      ▲
                 ▼      │ JSON lines
    places ─► launch ───┘                              starts the processes here, in namespaces or at agents
                 │
                 ▼
    study ─► results ─► samples ─► estimates ─► table, page
                                       │
    bundle of a run ─► recorded                      payloads of replays

The launch is the unit of repetition: all processes are new in each launch, and intervals are over launches (Hunold and
Carpen-Amarie, "MPI Benchmarking Revisited", arXiv 1505.07734).
"""
