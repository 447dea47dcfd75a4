"""Of a later set by the author who had not seen the checks those that were not noticed, 16 of 32, made again here from
what their author says of them."""

from __future__ import annotations

import re

from dlobd.bundle import files
from tests.mutations.edits import both, changed, moved, replaced, without_lines
from tests.mutations.mutation import Mutation
from tests.mutations.span_edits import removed

RM, NN = "logs/daemons/resourcemanager.log", "logs/daemons/namenode-audit.log"
EXECUTORS = "logs/containers/*_00000[23]/"
RANKS = "spans/*/spans-4[67]*.jsonl"
FROM_ETHERNET = r'("after":.*?"name":"eth0".*?"sent_bytes":)(\d+)(,"received_bytes":)(\d+)'
QUIET = {
    "sleep_over_p50_ns": 55_000, "sleep_over_p99_ns": 71_000, "loop_variation": 0.004, "loop_slowest": 1.006,
    "loopback_p50_ns": 5_100, "loopback_p99_ns": 6_200, "load_1m": 0.21,
}  # fmt: skip


def _half(found: re.Match[str]) -> str:
    return f"{found[1]}{int(found[2]) // 2}"


def _more(found: re.Match[str]) -> str:
    return f"{found[1]}{int(found[2]) + 3_000_000}{found[3]}{int(found[4]) + 3_000_000}"


MUTATIONS = (
    Mutation(
        "the driver called the NameNode never",
        "seen-run",
        without_lines(files.DRIVER_STDERR, r"ProtobufRpcEngine2 .*127\.0\.0\.1:30009:"),
        "the NameNode's audit log has what was done",
    ),
    Mutation(
        "recording cost a tenth",
        "sampled-run",
        both(
            changed(files.SPAN_COST, "span_ns", by=lambda ns: ns // 10),
            changed(files.SPAN_COST, "lowest_ns", by=lambda ns: ns // 10),
            changed(files.SPAN_COST, "highest_ns", by=lambda ns: ns // 10),
        ),
        "the CPU time of the recorders, which wrote the same spans",
    ),
    Mutation(
        "the machine was quiet",
        "seen-run",
        both(*(changed(files.NOISE, name, by=lambda _, to=to: to) for name, to in QUIET.items())),
        "the machine's load when the run began, half a minute before",
    ),
    Mutation(
        "the application ran 0.84 s sooner for the client",
        "seen-run",
        moved(files.DRIVER_STDERR, r"\(state: RUNNING\)|has started running", -840_000_000),
        "the answer of the ResourceManager that told it, in the same log",
    ),
    Mutation(
        "containers were allocated before they were requested",
        "seen-run",
        moved(RM, r"_00000[23] Container Transitioned from NEW to ALLOCATED", -150_000_000),
        "the ApplicationMaster's call with the request",
    ),
    Mutation(
        "the training files were on disk only",
        "sampled-run",
        both(
            changed(files.PAGE_CACHE, "resident_bytes", by=lambda _: 0),
            changed(files.PAGE_CACHE, "before_resident_bytes", by=lambda _: 0),
        ),
        "the DataNodes read nothing from disk",
    ),
    Mutation(
        "containers with half the memory",
        "sampled-run",
        both(
            changed(files.COLLECTED, "metrics", "executor_peak_bytes", by=lambda size: size // 2),
            replaced(files.NM_CONTAINERS, r'("PMemUsageMBsI?MaxMBs": )(\d+)', _half, count=0),
        ),
        "the sizes of the processes in the samples",
    ),
    Mutation(
        "the ranks exchanged over Ethernet",
        "sampled-run",
        both(
            replaced(RANKS, FROM_ETHERNET, _more, count=0),
            replaced(RANKS, r'"127\.0\.0\.1:(?=\d+")', '"192.0.2.2:', count=0),
        ),
        "the counters of eth0 in the samples",
    ),
    Mutation(
        "a staged file was closed without a retry",
        "seen-run",
        without_lines("logs/daemons/namenode.log", r"COMMITTED but not COMPLETE.*/py4j"),
        "the client's two calls to close it",
    ),
    Mutation(
        "the input was touched a second later",
        "sampled-run",
        moved(NN, r"cmd=open\tsrc=\S*/train/part-0000[01]\S*\t.*proto=rpc", 1_000_000_000),
        "the DataNodes' trace of the same files",
    ),
    Mutation(
        "tasks ran half as long, in both of their ends' lists",
        "sampled-run",
        both(
            replaced(files.EVENT_LOG, r'("Executor Run Time":)(\d+)', _half, count=0),
            replaced(files.EVENT_LOG, r'("internal.metrics.executorRunTime","Update":)(\d+)', _half, count=0),
        ),
        "the sums of their stages, and their Python workers' times",
    ),
    Mutation(
        "the driver has no wait for its trainers",
        "quick-run",
        removed("spans/driver/*", "await trainers"),
        "the ranks, which worked in that time",
    ),
    Mutation(
        "a user's function took 0.8 s longer",
        "own-run",
        replaced("spans/*/spans-3992-*", r'(\{"k":"e","i":14,"t":)3593058066639', r"\g<1>3593858066639"),
        "the executor's log of that worker's times, and the end of its task",
    ),
    Mutation(
        "a script has not collected",
        "own-run",
        removed("spans/driver/*", "JVM: collectAndServe"),
        "the driver's log of its job",
    ),
    Mutation(
        "a JVM collected its garbage less often",
        "seen-run",
        without_lines(f"{EXECUTORS}jvm.log", r"\] GC\((?:4|7|8|10|11)\) "),
        "the numbers of the others",
    ),
    Mutation(
        "the other rank died",
        "killed-trainer",
        replaced("spans/*/spans-14069-*", "trainer process 14117 died", "trainer process 14092 died"),
        "the spans of that one, which go on",
    ),
)
