"""Makes what in docs/ must not drift from the code: `layers.md`, `metrics.md`, `audits.md`, `selftest.md`, a page a
command in `commands/`, and the terminal picture.

    python docs/generate.py                    write all pages
    python docs/generate.py --check            exit 1 if one of them is stale
    python docs/generate.py picture BUNDLE     write breakdown.svg from a real run

Names, units and descriptions come from `dlobd.layers`, `dlobd.attribution.audits` and the schema of run.json. How a
number is computed stands in `FORMULAS` below, and a number of the schema without an entry there, or an entry without a
number, is an error. `command_pages.py`, beside this file, has the pages of the commands.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from dlobd.attribution.audits import AUDITS
from dlobd.attribution.statistics import fewest
from dlobd.bundle import store
from dlobd.bundle.run import Run
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.report import terminal
from dlobd.selftest import report
from dlobd.selftest.plans import SIZES_S
from dlobd.selftest.points import POINTS
from dlobd.spans import BETWEEN_MARKS, MEASURED, SPANS, OwnQuality

DOCS = Path(__file__).parent

MADE = """\
<!-- Made by docs/generate.py; change that, or dlobd/layers.py, dlobd/spans.py or
dlobd/bundle/run.schema.json. -->"""

LAYERS_PAGE = """\
# Layers

{made}

A layer is a place where time can go. The wall time of a run is split across these layers and nothing else; the parts
sum to the wall exactly. [methodology.md](methodology.md) describes how.

"Opens" and "closes" are the two events between which time can belong to the layer. Inside, the innermost open span
decides: HDFS calls made by the trainer count as HDFS, not TensorFlow.

{table}

`{unattributed}` is not a layer. It is time of the main lane in which no span was open, or whose layer a [missing
source](missing-evidence.md) would have told. Time that belongs to a layer, but that no evidence explains, is its
`unexplained` part; the report hatches both and counts them together.

## Names and degrees of evidence

The kinds of spans of each layer, and how well the own time of each is known: two of the
[degrees](methodology.md#degrees-of-evidence) of evidence. A star is the variable part of a name. A few names occur in
several layers: the same call on behalf of each of them.

{degrees}

The colours are from the colour-blind-safe Okabe-Ito palette.
"""

AUDITS_PAGE = """\
# Audits

<!-- Made by docs/generate.py; change that, or dlobd/attribution/audits. -->

An audit takes one quantity from two sources, and checks whether they agree. Every run is audited when it is recorded;
`audits` in run.json has both figures and their sources, `dlobd show` counts the verdicts, and `dlobd verify` repeats
the audits. There are {count}.

| Verdict | Meaning |
|---|---|
| `pass` | the figures agree |
| `fail` | they contradict each other: a run that succeeded is `invalid`, whichever of the two is right |
| `unknown` | no verdict; `detail` says why |

A verdict is `unknown` if a source is missing (plain processes have no DataNodes); if the audit does not apply to the
way of running (dlobd does not count your own script's samples; a run by hand has YARN's window); or if the figures
differ and the evidence itself explains it (a DataNode died, a Java HDFS client logged a warning, the cluster is
external and its logs may be incomplete, evidence from other hosts was aligned by their wall clocks). An audit marked
"whole" applies only to jobs that succeeded.

{table}

The number of "passes" over the input is the number of epochs; with the launcher `barrier` and `input = "feed"` it is
one, because later epochs come from the tasks' memory. The files of a bundle are checked by their sha256 in `hashes`,
which `dlobd verify` and `dlobd show` compare.

A machine that needs 200 ns or more to read its clock, such as an emulated one, is slower than others in all it does:
marks side by side may lie further apart there, by as many times as that is more than 100 ns.
"""

SELFTEST_PAGE = """\
# Self-test

<!-- Made by docs/generate.py from docs/selftest.json, the output of `dlobd selftest --json`. -->

Is the breakdown right? `dlobd selftest` puts delays of known size into real runs on the embedded cluster, and looks for
each one in the breakdown: in the startup of a job, its feed, its training and its end, in every layer.

```
dlobd selftest             five runs that cover every point, about five minutes; exit code 6 if a delay is not found
dlobd selftest --full      every point with {sizes}, and controls, about 80 minutes
```

The test is blind: the injector records by its own clock when it delayed the job, in a file that attribution never sees.
It is scored three times.

1. **Where the time of a delay went.** Each interval is compared with the attributed wall. Time that attribution gave to
   the delayed layer is recovered; time that it gave to other layers, or left unexplained or unattributed, is not.
   Target, for every single delay: at least {right:.0%} in its own layer and at most {wrong:.0%} in any other.
2. **What a layer got in all** (`--full`). Each run with delays has a control, just before or after it, with the
   same delays, each of no length: what the injector itself costs is in both. What a layer got more than in the control
   has to be what was injected into it, ripple effects included. Six such blocks give an interval of the median error:
   from the lowest to the highest, which holds it with 96.9 %. Target: zero lies in it for at least {holding:.0%} of the
   layers and ways. The rows are not corrected for their number. One run before all others warms the cluster up, and is
   not scored.
3. **How much of a run this proves.** The share of a control's wall in spans that some delay was put into. Target: at
   least {touched:.0%}. The table names what is left. "Without sleeps" leaves out waits whose length was read from the
   run: nothing is done in them, so that nothing can be delayed.

## Injection points

{points}

By `signal`: the processes named are stopped (SIGSTOP), which to all others looks like a daemon that hangs or a machine
that pauses, from the line in a log that says so on. By `application`: through YARN itself. By `control group`:
the kernel lets the DataNodes read only so many bytes a second from their disk; what that takes has no moment of its
own, but a known sum: the blocks are dropped from memory before, and what the kernel has of them after the run came from
the disk. So it is scored by the totals; some of it goes by unnoticed while the first step is computed. This needs root,
a block device and the controller blkio of control groups version 1; `--full` says so where it is left out. By `hook`:
our own code inside the process waits, where nothing outside knows the moment.

"While the trainer wants it" means that the injector first waits until the trainer asks, and the delay counts from then:
one that delays nothing would rightly be found nowhere. For the same reason, runs have one rank if a second one could
continue meanwhile.

Delays of layer `channel` are put into an exchange of dlobd's own, and have to be found in the very part that was
delayed: pack, wait for peers, wire or unpack. From outside, a channel is slowed on the [compose cluster](compose.md),
where a cap of `fabric` has a known cost. The five runs leave out `user`, which exists only for your own script.

## Result

{facts}

Seconds injected and recovered, over all sizes; the smallest share of a single delay that was recovered, and the largest
share that was blamed on another layer.

{delays}

Confusion matrix: which layer was blamed, in seconds; one row per delayed layer.

{matrix}

recovered = slope x injected + intercept. With a slope of 1 no share is lost; with an intercept of 0 nothing is lost at
the edges.

{lines}

{beyond}

{verdict}
"""

METRICS_PAGE = """\
# Numbers of run.json

{made}

Each number in a run's record: its unit, its meaning, and how it is computed. `[]` stands for each element of a list.
`null` means unknown: not measured, or the run ended before it could be; it never means 0.

Names ending in `_ns` are integer nanoseconds. `start_ns`, `end_ns` and `at_ns` are CLOCK_MONOTONIC times of the clock
domain that `window.clock` names; subtract `window.start_ns` to count from the start of the run. "own mark"
is a line written by dlobd's recorder; the other sources are described in [methodology.md](methodology.md#sources).

{tables}
## Data frames

`dlobd.load(BUNDLE)` gives the data as pandas data frames: `.attribution()` (columns {attribution}), `.spans()` (columns
{spans}), `.steps()` (columns {steps}), `.epochs()` (columns {epochs}) and `.resources()` (columns {resources}). Their
`start_ns`, `end_ns` and `at_ns` count from the start of the window. In `.resources()`, `role` is `host` for the whole
machine; CPU time and bytes of disks and networks have added up since the machine or the process was started.
`dlobd export` writes spans, steps and epochs as [CSV or Parquet](file-format.md#tables).
"""

PASSED = {
    "ns": "sum of its segments",
    "on_core_ns": "growth of the counters of the thread that carried each segment, in proportion between two readings",
    "on_core_lo_ns": "of each stretch between readings: growth - what of the stretch is not the layer's; at least 0",
    "on_core_hi_ns": "of each stretch between readings: growth; at most what of the stretch is the layer's",
    "waiting_ns": "as `on_core_ns`, of the time that schedstat counts in the run queue",
    "waiting_lo_ns": "as `on_core_lo_ns`",
    "waiting_hi_ns": "as `on_core_hi_ns`",
    "blocked_ns": "`ns` - the two others - `unknown_ns`",
    "unknown_ns": "sum of its segments whose thread was not read then, or is none of the run's",
}

TIMES = {"step": "lengths of the steps' spans", "step_with_input": "times with input"}

FORMULAS: dict[str, tuple[str, str]] = {
    # path: (unit, how it is computed from what; for the experiment, which says so itself, what it is)
    "schema_version": ("-", "constant of this dlobd version"),
    "configuration.workers": ("ranks", "Training ranks, one executor each."),
    "configuration.epochs": ("passes", "Passes over the training samples."),
    "configuration.batch_size": ("samples", "Samples per rank and step."),
    "configuration.learning_rate": ("-", "Learning rate, before its schedule."),
    "configuration.momentum": ("-", "Share of the last update that the next one has too; 0 for optimiser `sgd`."),
    "configuration.weight_decay": ("-", "This times the weight is added to the gradient; not of biases."),
    "configuration.num_epochs_per_decay": ("epochs", "Schedule `step` lowers the learning rate this often; else 0."),
    "configuration.learning_rate_decay_factor": ("-", "Schedule `step` multiplies the learning rate by it; else 0."),
    "configuration.warmup_epochs": ("epochs", "The learning rate rises linearly over so many, from the start."),
    "configuration.train_samples": ("samples", "Samples per epoch, all ranks together."),
    "configuration.test_samples": ("samples", "Samples evaluated after training."),
    "configuration.checkpoint_every_steps": ("steps", "Rank 0 writes a checkpoint every so many steps."),
    "configuration.min_accuracy": ("share", "A run with a lower test accuracy is invalid."),
    "configuration.seed": ("-", "Random seed for the data order and the initial weights."),
    "configuration.replication": ("-", "Replication of the job's files in HDFS: input, checkpoints, event log."),
    "configuration.executor_memory_mb": ("MiB", "Heap of an executor's JVM."),
    "configuration.executor_overhead_mb": ("MiB", "Memory besides the heap, for the Python worker and the trainer."),
    "configuration.timeout_s": ("s", "Time limit for the whole job, from spark-submit to its exit."),
    "configuration.accept_timeout_s": ("s", "How long YARN may leave the application without an ApplicationMaster."),
    "configuration.max_steps": ("steps", "Training ends after so many, if its epochs have not; 0: no limit."),
    "configuration.max_seconds": (
        "s",
        "Training ends so long after the first batch, if its epochs have not; 0: never.",
    ),
    "configuration.evaluate_every_epochs": ("epochs", "How often the test set is evaluated; 0: only at the end."),
    "configuration.target_accuracy": ("share", "Training ends with the epoch that reaches it; 0: no target."),
    "configuration.intra_op_threads": ("threads", "TensorFlow's threads within an operation; 0: TensorFlow's choice."),
    "configuration.inter_op_threads": ("threads", "TensorFlow's threads for operations; 0: TensorFlow's choice."),
    "configuration.exchange_fusion_mb": ("MiB", "The most that one message of an exchange of dlobd's own holds."),
    "configuration.exchange_servers": ("servers", "Parameter servers, of exchanges `ps`, `ps-async` and `tf-ps`."),
    "configuration.executor_cores": ("cores", "Cores of an executor's container."),
    "configuration.synthetic_classes": ("classes", "Classes of data set synthetic."),
    "configuration.block_size_mb": ("MiB", "HDFS block size of the training files; 0: each file is one block."),
    "window.start_ns": ("ns", "read just before `exec` of spark-submit, own clock"),
    "window.end_ns": ("ns", "read when the kernel reports the exit of spark-submit (pidfd), own clock"),
    "wall_ns": ("ns", "`window.end_ns - window.start_ns`"),
    "layers[].ns": ("ns", "sum of the segments of the window that belong to the layer"),
    "layers[].measured_ns": ("ns", "sum of its segments whose span is `measured` in `dlobd/spans.py`"),
    "layers[].between_marks_ns": (
        "ns",
        "the same of those whose span is `between marks` there, or whose end was not seen",
    ),
    "layers[].named_wait_ns": ("ns", "sum of its `causes`"),
    "layers[].unexplained_ns": (
        "ns",
        "sum of its segments of kind `unexplained`: a wait whose releasing lane shows nothing and that no cause covers",
    ),
    "layers[].lo_ns": (
        "ns",
        "`ns` - resolution of each boundary with another layer - `hi_ns` of the intervals inside it; at least 0",
    ),
    "layers[].hi_ns": (
        "ns",
        "`ns` + resolution of each boundary with another layer + `hi_ns` of its own intervals; at most the wall",
    ),
    "layers[].causes[][]": ("ns", "wait time attributed to the named cause; at most the cause's period per wait"),
    "layers[].names[][]": ("ns", "sum of the segments whose span has that name"),
    "unattributed_ns": ("ns", "sum of the segments of the main lane without an open span"),
    "intervals[].start_ns": ("ns", "start of the containing span"),
    "intervals[].end_ns": ("ns", "end of the containing span"),
    "intervals[].lo_ns": (
        "ns",
        "bytes / rate of the run's fastest DataNode transfer of at least 1 MiB; at most `hi_ns`; 0 if there was none",
    ),
    "intervals[].hi_ns": (
        "ns",
        (
            "sum of the durations in the DataNodes' client trace, which include the client's back-pressure; "
            "at most `end_ns - start_ns`"
        ),
    ),
    "clips[].ns": (
        "ns",
        "length that was cut off, or by which it contradicts other evidence; for a truncated span, its known length",
    ),
    "metrics.test_accuracy": (
        "share",
        "correct / all test samples, with the model read back from HDFS; rank 0's done-marker",
    ),
    "metrics.train_samples": ("samples", "sum over the ranks' done-markers"),
    "metrics.steps": ("steps", "minimum over the ranks' done-markers"),
    "metrics.samples_per_second": ("samples/s", "`train_samples / training_ns * 1e9`"),
    "throughput.warmup_steps": ("steps", "constant, tf_cnn_benchmarks' default"),
    "throughput.steps": ("steps", "the chief's spans `step`, without those"),
    "throughput.samples_per_step": ("samples", "`batch_size * workers` of the job"),
    "throughput.mean": (
        "samples/s",
        (
            "`samples_per_step` / mean of the steps' times with input: "
            "from the end of the chief's step before, or of its checkpoint, evaluation or agreement since"
        ),
    ),
    "throughput.uncertainty": (
        "samples/s",
        "standard deviation of the n steps' speeds / sqrt(n); a speed is `samples_per_step` / a step's time with input",
    ),
    "throughput.jitter": ("samples/s", "1.4826 * median absolute deviation of these speeds from their median"),
    **{
        f"throughput.{which}.p{q}_ns": (
            "ns",
            f"the n {times}, sorted: element floor({q / 100:g} n), counted from 0; null if n < {fewest(q / 100)}",
        )
        for which, times in TIMES.items()
        for q in (50, 90, 95, 99)
    },
    **{f"throughput.{which}.max_ns": ("ns", f"the longest of the {times}") for which, times in TIMES.items()},
    "epochs[].epoch": ("-", "own mark `epoch done` of the chief"),
    "epochs[].end_ns": ("ns", "own mark `epoch done` of the chief; after its checkpoint, if one was due"),
    "epochs[].ns": (
        "ns",
        "`end_ns` - `first batch` of the chief, or the end of the epoch before and of its evaluation, if it had one",
    ),
    "epochs[].loss": ("nats", "own mark `epoch done` of the chief"),
    "epochs[].test_samples": (
        "samples",
        "own mark `epoch evaluated` of the chief; of the last epoch without one: of the stored model",
    ),
    "epochs[].test_accuracy": ("share", "as `test_samples`: correct / all"),
    "epochs[].evaluation_ns": (
        "ns",
        "own mark `epoch evaluated` - `end_ns`; of the stored model: `evaluated` - `end_ns`, so with storing it",
    ),
    "first_touch.at_ns": (
        "ns",
        (
            "first `open` of a training file in the NameNode's audit log; without one the earlier of: an "
            "executor's log line of its input split, which may come seconds before; own mark of a rank that reads"
        ),
    ),
    "first_touch.resolution_ns": ("ns", "as in `startup`"),
    "time_to_accuracy.target": ("share", "`configuration.target_accuracy`"),
    "time_to_accuracy.epoch": ("-", "first of `epochs` with at least that `test_accuracy`"),
    "time_to_accuracy.from_submit_ns": ("ns", "its `end_ns + evaluation_ns` - `window.start_ns`"),
    "time_to_accuracy.from_first_touch_ns": ("ns", "its `end_ns + evaluation_ns` - `first_touch.at_ns`"),
    "startup[].at_ns": ("ns", "the record that `source` names"),
    "startup[].resolution_ns": (
        "ns",
        "1 for own marks and JVM logs, 1,000 for log lines with `%nano`, one kernel tick for /proc",
    ),
    "teardown[].at_ns": ("ns", "the record that `source` names"),
    "teardown[].resolution_ns": ("ns", "as in `startup`"),
    "hdfs[].operations": ("calls", "files written or read for the purpose; for an interval, tasks or containers"),
    "hdfs[].bytes": (
        "bytes",
        (
            "own mark, else size of the input split or of the file, else DataNode client trace, whose reads include "
            "checksums (about 0.8 %)"
        ),
    ),
    "hdfs[].ns": ("ns", "sum of the spans of all lanes, which overlap: not a part of the wall"),
    "hdfs[].lo_ns": ("ns", "`ns`, or the sum of the intervals' `lo_ns`"),
    "hdfs[].hi_ns": ("ns", "`ns`, or the sum of the intervals' `hi_ns`"),
    "ranks[].index": ("-", "own mark"),
    "ranks[].steps": ("steps", "number of the rank's spans `step` and `first step`"),
    "ranks[].step_p50_ns": ("ns", "its n steps without the first one, sorted: element floor(0.5 n), counted from 0"),
    "ranks[].step_p99_ns": (
        "ns",
        "element floor(0.99 n); null if n < 299, where it says no more than the maximum",
    ),
    "ranks[].step_max_ns": ("ns", "the last element"),
    "ranks[].cores": ("cores", "done-marker: sched_getaffinity"),
    "ranks[].intra_op_threads": ("threads", "done-marker: tf.config.threading, after the context was made"),
    "ranks[].inter_op_threads": ("threads", "done-marker: tf.config.threading, after the context was made"),
    "audits[].left": ("as its source says", "the source that `left_source` names"),
    "audits[].right": ("as its source says", "the source that `right_source` names"),
    "noise.timer_ns": ("ns", "median interval between 2,000 consecutive readings of CLOCK_MONOTONIC"),
    "noise.sleep_over_p50_ns": ("ns", "median of 300 sleeps of 1 ms, minus 1 ms"),
    "noise.sleep_over_p99_ns": ("ns", "their 99th percentile, minus 1 ms"),
    "noise.loop_variation": ("share", "standard deviation / mean of 8 equal pieces of work of about 25 ms"),
    "noise.loop_slowest": ("share", "the slowest of them / their median"),
    "noise.steal_share": (
        "share",
        "steal / all CPU time during the measurement, /proc/stat; null if the kernel does not report it",
    ),
    "noise.loopback_p50_ns": ("ns", "median of 400 TCP round trips over loopback"),
    "noise.loopback_p99_ns": ("ns", "their 99th percentile"),
    "noise.load_1m": ("processes", "/proc/loadavg"),
    "noise.earlier_walls_ns[]": (
        "ns",
        "`wall_ns` of the `ok` runs among the latest 50 beside this one that have its `experiment_key` and machine",
    ),
    "page_cache.resident_bytes": ("bytes", "pages of the files that mincore says are resident x page size"),
    "page_cache.total_bytes": ("bytes", "their sizes"),
    "page_cache.before_resident_bytes": ("bytes", "as `resident_bytes`, before they were read or dropped"),
    "imports[].index": ("-", "own mark"),
    "imports[].pid": ("-", "own mark"),
    "imports[].ns": ("ns", "sum of its instants `package imported`: from before the module was run to its end"),
    "imports[].own_ns": ("ns", "`ns` - the same of what other packages it imported meanwhile"),
    "environment_cache.parts[].total_bytes": ("bytes", "their sizes"),
    "environment_cache.parts[].before_bytes": ("bytes", "as `page_cache.resident_bytes`"),
    "environment_cache.parts[].after_bytes": ("bytes", "the same when the job had ended"),
    "findings[].ns": ("ns", "sum of the pieces of the attributed wall that the cause has"),
    "findings[].saves_ns": ("ns", "wall - the wall of the trace replayed without the cause; see findings.md"),
    "findings[].lo_ns": ("ns", "`saves_ns` - the uncertainty of the boundaries of what was taken out; above 0"),
    "exchange[].index": ("-", "own mark"),
    "exchange[].calls": ("calls", "spans `exchange` of whole steps"),
    "exchange[].bytes": ("bytes", "sum over its spans `pack` of their `bytes`"),
    "exchange[].compute_ns": ("ns", "sum of its spans `forward and backward` and `apply`"),
    "exchange[].exchange_ns": ("ns", "sum of its spans `exchange`"),
    "exchange[].pack_ns": ("ns", "sum of its spans `pack`"),
    "exchange[].wait_for_peers_ns": ("ns", "sum of its spans `wait for peers`"),
    "exchange[].wire_ns": ("ns", "sum of its spans `wire`"),
    "exchange[].unpack_ns": ("ns", "sum of its spans `unpack`"),
    "exchange[].overlap": (
        "share",
        "(M + P - U) / min(M, P) of M = `compute_ns`, P = `exchange_ns` and U, the sum of the steps; at least 0",
    ),
    "seeds.*": ("-", "experiment file"),
    "overhead.span_cost_ns": ("ns", "`span_ns` of evidence/span_cost.json: 7 times 100 spans with cold caches, median"),
    "overhead.spans": ("spans", "lines of spans/ that begin a span"),
    "overhead.lines": ("lines", "lines of spans/ that can be read"),
    "overhead.lost_lines": (
        "lines",
        "sum over the processes of the last `cost` line, or of what the recorder said on stderr, whichever is more",
    ),
    "overhead.left_out": ("calls", "sum over the processes' last `cost` lines; only for your own scripts"),
    "overhead.flush_ns": (
        "ns",
        "sum over the processes' last `cost` lines, without the last second at most; overlaps the job",
    ),
    "overhead.flush_cpu_ns": ("ns", "as `flush_ns`"),
    "overhead.span_bytes": ("bytes", "sizes of the files in spans/"),
    "overhead.log_bytes": (
        "bytes",
        "sizes of Spark's event log, the JVMs' own logs, the NameNode's audit log and the DataNodes' client traces",
    ),
    "overhead.chain_spans": (
        "spans",
        "own marks that begin in a segment of the wall that belongs to their lane; threads are not counted",
    ),
    "overhead.chain_ns": ("ns", "`chain_spans * span_cost_ns`; included in the layers' numbers"),
    "overhead.chain_share": ("share", "`chain_ns / wall_ns`"),
    "overhead.loop.length_ns": ("ns", "`last step done` - `first batch` of the rank with the longest; own marks"),
    "overhead.loop.spans": ("spans", "the rank's spans that begin within the loop"),
    "overhead.loop.ns": ("ns", "`spans * span_cost_ns`; much of it is writing, which may run in parallel to the loop"),
    "overhead.loop.share": ("share", "`ns / length_ns`"),
    **{f"core_waits.{path}.{name}": ("ns", how) for path in ("whole", "layers[]") for name, how in PASSED.items()},
    "core_waits.unknown[][]": ("ns", "segments without a carrier, or outside its readings"),
    "core_waits.processes[].index": ("-", "own mark; the executor's id"),
    "core_waits.processes[].pid": ("-", "own mark; psutil"),
    "core_waits.processes[].main_on_core_ns": ("ns", "growth in the window; /proc/PID/task/TID/schedstat"),
    "core_waits.processes[].main_waiting_ns": ("ns", "the same: its second number"),
    "core_waits.processes[].on_core_ns": ("ns", "growth in the window of the process's CPU clock"),
    "core_waits.processes[].waiting_ns": ("ns", "sum over its threads of what schedstat says when they were last seen"),
    "core_waits.processes[].ended_on_core_ns": ("ns", "`on_core_ns` - the same sum of their time on a core"),
    "core_waits.processes[].read_bytes": ("bytes", "growth in the window; /proc/PID/io"),
    "core_waits.processes[].major_faults": ("pages", "growth in the window; /proc/PID/stat"),
    "core_waits.processes[].block_io_ns": (
        "ns",
        "growth in the window; /proc/PID/stat, in ticks of 10 ms; `delayacct`",
    ),
    "core_waits.pressure[].sampled_ns": ("ns", "overlap of the window with [first reading, last reading]"),
    "core_waits.pressure[].cpu_ns": ("ns", "growth in the window of `some` in /proc/pressure/cpu"),
    "core_waits.pressure[].io_ns": ("ns", "growth in the window of `some` in /proc/pressure/io"),
    "core_waits.foreign_cpu_ns": (
        "ns",
        "sum over the stretches between two samples of the machine's CPU time - that of the run's processes",
    ),
    "core_waits.held_up_ns": (
        "ns",
        "sum over these stretches of the waiting in it x the foreign share of the CPU time in it",
    ),
    "resources.period_ns": ("ns", "constant of the sampler"),
    "resources.samples": ("samples", "evidence/resources.jsonl"),
    "resources.longest_gap_ns": ("ns", "largest difference of successive samples"),
    "resources.cost_ns": ("ns", "the sampler's own CPU time"),
    "resources.hosts[].cores": ("cores", "psutil"),
    "resources.hosts[].memory_bytes": ("bytes", "psutil"),
    "resources.hosts[].sampled_ns": ("ns", "overlap of the window with [first sample, last sample]"),
    "resources.hosts[].cpu_busy_ns": (
        "ns",
        "growth of the counter in the window, linear between samples; /proc/stat: user, nice, system, irq, softirq",
    ),
    "resources.hosts[].cpu_stolen_ns": (
        "ns",
        "growth of the counter in the window, linear between samples; /proc/stat: steal",
    ),
    "resources.hosts[].processes_cpu_ns": (
        "ns",
        "the same of all processes below dlobd and the cluster's daemons; user and system",
    ),
    "resources.hosts[].unseen_cpu_ns": (
        "ns",
        "growth of what a process has reaped, minus the last samples of its ended children, if positive",
    ),
    "resources.hosts[].memory_used_peak_bytes": ("bytes", "largest sample of total - available"),
    "resources.hosts[].disk_read_bytes": (
        "bytes",
        "growth of the counter in the window, linear between samples; disks with hardware",
    ),
    "resources.hosts[].disk_written_bytes": (
        "bytes",
        "growth of the counter in the window, linear between samples; disks with hardware",
    ),
    "resources.hosts[].loopback_bytes": (
        "bytes",
        "growth of the counter in the window, linear between samples; received on `lo`",
    ),
    "resources.hosts[].net_received_bytes": (
        "bytes",
        "as `loopback_bytes`, on interfaces with hardware; in a container all but `lo`",
    ),
    "resources.hosts[].net_sent_bytes": ("bytes", "as `net_received_bytes`"),
    "resources.processes[].index": ("-", "own mark; the executor's id; the daemon's name"),
    "resources.processes[].pid": ("-", "psutil"),
    "resources.processes[].count": ("processes", "rows added up"),
    "resources.processes[].cpu_ns": (
        "ns",
        "growth of the counter in the window, linear between samples; from 0 at the process's start; in ticks of 10 ms",
    ),
    "resources.processes[].rss_peak_bytes": ("bytes", "largest sample"),
    "resources.processes[].read_bytes": (
        "bytes",
        "growth of the counter in the window, linear between samples; /proc/PID/io",
    ),
    "resources.processes[].write_bytes": (
        "bytes",
        "growth of the counter in the window, linear between samples; /proc/PID/io",
    ),
    "resources.layers[].ns": ("ns", "as `layers[].ns`, and `unattributed_ns`"),
    "resources.layers[].sampled_ns": ("ns", "as `hosts[].sampled_ns`, of its segments"),
    "resources.layers[].cpu_busy_share": ("share", "`cpu_busy_ns / (sampled_ns * cores)`"),
    "resources.layers[].gpu_busy_share": ("share", "mean over the GPUs, as `gpus[].busy_share`"),
    "resources.layers[].cpu_busy_ns": (
        "ns",
        "growth of the host's counter in the layer's segments; sums to the host's",
    ),
    "resources.layers[].disk_read_bytes": (
        "bytes",
        "growth of the host's counter in the layer's segments; disks with hardware",
    ),
    "resources.layers[].disk_written_bytes": (
        "bytes",
        "growth of the host's counter in the layer's segments; disks with hardware",
    ),
    "resources.layers[].loopback_bytes": (
        "bytes",
        "growth of the host's counter in the layer's segments; received on `lo`",
    ),
    "resources.layers[].net_received_bytes": (
        "bytes",
        "as `hosts[].net_received_bytes`, in the layer's segments",
    ),
    "resources.layers[].net_sent_bytes": ("bytes", "as `net_received_bytes`"),
    "resources.gpus[].index": ("-", "NVML"),
    "resources.gpus[].memory_bytes": ("bytes", "NVML"),
    "resources.gpus[].busy_share": ("share", "NVML's utilisation of each sample, for the time since the sample before"),
    "resources.gpus[].memory_used_peak_bytes": ("bytes", "largest sample of NVML's used memory"),
    "spark_metrics.metrics.numStages": ("stages", "stage attempts with a `SparkListenerTaskEnd` in Spark's event log"),
    "spark_metrics.metrics.numTasks": ("tasks", "`SparkListenerTaskEnd` of Spark's event log"),
    "spark_metrics.metrics.elapsedTime": ("ms", "latest `Finish Time` - earliest `Launch Time` of all tasks"),
    "spark_metrics.metrics.executorRunTime": (
        "ms",
        "sum of `Executor Run Time`; Spark counts each CPU of a task (SPARK-51666)",
    ),
    "spark_metrics.metrics.executorCpuTime": ("ms", "sum of `Executor CPU Time`, of each stage in whole ms"),
    "spark_metrics.metrics.executorDeserializeTime": ("ms", "sum of `Executor Deserialize Time`"),
    "spark_metrics.metrics.executorDeserializeCpuTime": (
        "ms",
        "sum of `Executor Deserialize CPU Time`, of each stage in whole ms",
    ),
    "spark_metrics.metrics.resultSerializationTime": ("ms", "sum of `Result Serialization Time`"),
    "spark_metrics.metrics.jvmGCTime": ("ms", "sum of `JVM GC Time`"),
    "spark_metrics.metrics.shuffleFetchWaitTime": ("ms", "sum of `Shuffle Read Metrics / Fetch Wait Time`"),
    "spark_metrics.metrics.shuffleWriteTime": (
        "ms",
        "sum of `Shuffle Write Metrics / Shuffle Write Time`, of each stage in whole ms",
    ),
    "spark_metrics.metrics.resultSize": ("bytes", "largest stage's sum of `Result Size`"),
    "spark_metrics.metrics.diskBytesSpilled": ("bytes", "sum of `Disk Bytes Spilled`"),
    "spark_metrics.metrics.memoryBytesSpilled": ("bytes", "sum of `Memory Bytes Spilled`"),
    "spark_metrics.metrics.peakExecutionMemory": ("bytes", "largest stage's sum of `Peak Execution Memory`"),
    "spark_metrics.metrics.recordsRead": ("records", "sum of `Input Metrics / Records Read`"),
    "spark_metrics.metrics.bytesRead": ("bytes", "sum of `Input Metrics / Bytes Read`"),
    "spark_metrics.metrics.recordsWritten": ("records", "sum of `Output Metrics / Records Written`"),
    "spark_metrics.metrics.bytesWritten": ("bytes", "sum of `Output Metrics / Bytes Written`"),
    "spark_metrics.metrics.shuffleRecordsRead": ("records", "sum of `Shuffle Read Metrics / Total Records Read`"),
    "spark_metrics.metrics.shuffleTotalBlocksFetched": (
        "blocks",
        "sum of `Shuffle Read Metrics / Local Blocks Fetched` + `Shuffle Read Metrics / Remote Blocks Fetched`",
    ),
    "spark_metrics.metrics.shuffleLocalBlocksFetched": (
        "blocks",
        "sum of `Shuffle Read Metrics / Local Blocks Fetched`",
    ),
    "spark_metrics.metrics.shuffleRemoteBlocksFetched": (
        "blocks",
        "sum of `Shuffle Read Metrics / Remote Blocks Fetched`",
    ),
    "spark_metrics.metrics.shuffleTotalBytesRead": (
        "bytes",
        "sum of `Shuffle Read Metrics / Local Bytes Read` + `Shuffle Read Metrics / Remote Bytes Read`",
    ),
    "spark_metrics.metrics.shuffleLocalBytesRead": ("bytes", "sum of `Shuffle Read Metrics / Local Bytes Read`"),
    "spark_metrics.metrics.shuffleRemoteBytesRead": ("bytes", "sum of `Shuffle Read Metrics / Remote Bytes Read`"),
    "spark_metrics.metrics.shuffleRemoteBytesReadToDisk": (
        "bytes",
        "sum of `Shuffle Read Metrics / Remote Bytes Read To Disk`",
    ),
    "spark_metrics.metrics.shuffleBytesWritten": ("bytes", "sum of `Shuffle Write Metrics / Shuffle Bytes Written`"),
    "spark_metrics.metrics.shuffleRecordsWritten": (
        "records",
        "sum of `Shuffle Write Metrics / Shuffle Records Written`",
    ),
    "spark_metrics.failed_tasks": ("tasks", "ended with a reason other than `Success`"),
    "spark_metrics.skew_ns": ("ns", "sum of `stages[].skew_ns`"),
    "spark_metrics.stages[].stage": ("-", "Spark's event log"),
    "spark_metrics.stages[].attempt": ("-", "Spark's event log"),
    "spark_metrics.stages[].skew_ns": ("ns", "longest - median `Finish Time` - `Launch Time` of its tasks"),
    "spark_metrics.stages[].metrics.*": ("as in `metrics`", "the same sums over the stage's tasks"),
    "setup.*": (
        "ns; bytes for `staged_bytes`",
        (
            "own clock around the step, outside the window; `cluster_up_ns` is null if a cluster was already up, "
            "`staged_bytes` is 0 if the data was already in HDFS"
        ),
    ),
    "platform.*": ("cores, bytes, load", "operating system, at the start of the run"),
}

MORE_METRICS: dict[str, tuple[str, str, str]] = {
    # metrics that the schema allows and does not require: (unit, what, how)
    "test_samples": ("samples", "Samples evaluated.", "rank 0's done-marker"),
    "first_loss": ("nats", "Mean loss of the first step over all ranks.", "rank 0's done-marker"),
    "last_loss": ("nats", "Mean loss of the last step over all ranks.", "rank 0's done-marker"),
    "training_ns": (
        "ns",
        "From the first batch to the last step.",
        "latest `last step done` - earliest `first batch` of all ranks; own marks",
    ),
    "loop_ns": (
        "ns",
        "Training loop of the slowest rank, first batch to last step.",
        "maximum over the ranks' done-markers; known even if recording was off",
    ),
    "spans": ("spans", "Spans that dlobd's recorder wrote, in all processes.", "lines of spans/ that begin a span"),
    "daemons_bytes": (
        "bytes",
        "Resident memory of the cluster's daemons after the run.",
        "sum of their resident sets, /proc",
    ),
    "executor_peak_bytes": (
        "bytes",
        "Peak of the largest executor container with its trainer.",
        "NodeManager's container metrics over JMX: once a second, whole process tree, whole MiB",
    ),
}

MORE_RANKS: dict[str, tuple[str, str, str]] = {
    "first_step_ns": ("ns", "First step, which traces and compiles.", "span `first step`"),
    "feed_wait_ns": ("ns", "Time the trainer waited for blocks.", "sum of the spans `get` and `await block`"),
    "main_ns": (
        "ns",
        "Your own main function; only for your own script.",
        "its span `user code`; null if it was truncated",
    ),
}


def main(argv: list[str] | None = None) -> int:
    """Writes, checks or draws; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is stale")
    parser.add_argument("--to", type=Path, default=DOCS, help="directory of the pages (default: docs)")
    commands = parser.add_subparsers(dest="command")
    draw = commands.add_parser("picture", help="draw breakdown.svg")
    draw.add_argument("bundle", type=Path, help="bundle of a run")
    chosen = parser.parse_args(argv)
    if chosen.command == "picture":
        (chosen.to / "breakdown.svg").write_text(picture(store.find(chosen.bundle, Path("runs")).read()))
        return 0
    made = pages()
    stale = {path: text for name, text in made.items() if _read(path := chosen.to / name) != text}
    left_over = [path for path in sorted(chosen.to.glob("commands/*.md")) if f"commands/{path.name}" not in made]
    if chosen.check:
        for path in stale:
            print(f"{path} is stale. Next: python docs/generate.py", file=sys.stderr)
        for path in left_over:
            print(f"{path} is of no command. Next: python docs/generate.py", file=sys.stderr)
        return 1 if stale or left_over else 0
    for path, text in stale.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"wrote {path}")
    for path in left_over:
        path.unlink()
        print(f"removed {path}")
    return 0


def pages() -> dict[str, str]:
    """File name to content of the pages that are made from the code."""
    return {
        "layers.md": layers_page(),
        "metrics.md": metrics_page(),
        "audits.md": audits_page(),
        "selftest.md": selftest_page(),
        **_beside("command_pages").pages(DOCS),
    }


def _beside(name: str) -> Any:
    """A module of this directory, which is no package, wherever this one was loaded from."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def audits_page() -> str:
    """One row an audit, in the order of run.json."""
    rows = [
        (
            rule.audit,
            rule.says,
            rule.left_source,
            rule.right_source,
            rule.comparison.words,
            "whole" if rule.whole else "any",
        )
        for rule in AUDITS
    ]
    header = ("Audit", "What must hold", "Left source", "Right source", "Comparison", "Applies to")
    return AUDITS_PAGE.format(table=_table(header, rows), count=len(rows))


def selftest_page() -> str:
    """The tables of a full self-test, as `dlobd selftest` prints them."""
    whole = json.loads((DOCS / "selftest.json").read_text())
    points = [(f"`{p.name}`", p.layer, p.by, p.how, "often" if p.often else "once") for p in POINTS.values()]
    sizes = [f"{seconds:g} s" for seconds in SIZES_S]
    return SELFTEST_PAGE.format(
        sizes=f"{', '.join(sizes[:-1])} and {sizes[-1]}",
        points=_table(("Point", "Layer", "By", "What", "Per run"), points),
        facts="\n".join(f"- {fact}" for fact in whole["facts"]),
        delays=_table(report.DELAYS, report.by_point(whole)),
        matrix=_table(("delayed", *report.columns(whole)), report.matrix_rows(whole)),
        lines=_table(report.LINES, report.line_rows(whole)),
        beyond=_beyond_delays(whole),
        verdict="\n".join(f"- {line.capitalize()}." for line in report.verdicts(whole)),
        **whole["target"],
    )


def _beyond_delays(whole: dict[str, Any]) -> str:
    """Totals and coverage, as far as the result has them."""
    totals = "This result is of the five runs, which have no controls: it has no totals."
    if whole["totals"]:
        table = _table(report.TOTALS, report.total_rows(whole))
        totals = f"What was added to each layer, less what was injected into it.\n\n{table}"
    covered = _table(report.COVERED, report.covered_rows(whole))
    said = "How much of a run lies in spans with a delay, and the largest spans without one."
    return f"{totals}\n\n{said}\n\n{covered}"


def layers_page() -> str:
    """One row a layer, in the order of every report."""
    rows = [
        (
            f"**{layer.title}** `{layer.name}`",
            layer.group,
            layer.opens,
            layer.closes,
            layer.source,
            layer.cannot_see,
            f"`{layer.colour}`",
        )
        for layer in LAYERS.values()
    ]
    header = ("Layer", "Group", "Opens", "Closes", "Source", "Cannot see", "Colour")
    known = [(f"`{layer}`", *(_kinds(layer, quality) for quality in (MEASURED, BETWEEN_MARKS))) for layer in LAYERS]
    degrees = _table(("Layer", "Measured", "Between marks"), known)
    return LAYERS_PAGE.format(made=MADE, table=_table(header, rows), unattributed=UNATTRIBUTED, degrees=degrees)


def _kinds(layer: str, quality: OwnQuality) -> str:
    rows = [kind for kind in SPANS.values() if kind.layer == layer and kind.quality == quality]
    return ", ".join(f"`{kind.text('*')}`" for kind in rows)


def metrics_page() -> str:
    """One row a number, grouped by the member of run.json that holds it.

    Raises:
        ValueError: a number of the schema has no entry in FORMULAS, or the other way round.
    """
    from dlobd.attribution import frames

    found = dict(numbers(store.schema()))
    if found.keys() != FORMULAS.keys():
        raise ValueError(f"docs/generate.py: FORMULAS and the schema differ: {sorted(found.keys() ^ FORMULAS.keys())}")
    groups: dict[str, list[tuple[str, str, str, str]]] = {}
    for path, what in found.items():
        group, _, member = path.partition(".") if "." in path else ("", "", path)
        unit, how = FORMULAS[path]
        row = (unit, what, how) if group != "configuration" else (unit, how, "experiment file")
        groups.setdefault(group.removesuffix("[]"), []).append((f"`{member}`", *row))
    for group, more in (("metrics", MORE_METRICS), ("ranks", MORE_RANKS)):
        groups[group] += [(f"`{name}`", *row) for name, row in more.items()]
    described = store.schema()["properties"]
    parts = []
    for group, rows in groups.items():
        heading = f"## {group}\n\n{described[group].get('description', '')}" if group else "## The run as a whole\n"
        parts.append(f"{heading.rstrip()}\n\n{_table(('Number', 'Unit', 'Meaning', 'Computed from'), rows)}\n")
    columns = {
        "attribution": frames.ATTRIBUTION,
        "spans": frames.SPANS,
        "steps": frames.STEPS,
        "epochs": frames.EPOCHS,
        "resources": frames.RESOURCES,
    }
    named = {name: ", ".join(f"`{column}`" for column in of) for name, of in columns.items()}
    return METRICS_PAGE.format(made=MADE, tables="\n".join(parts), **named)


def numbers(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """(path, description) of each number that a JSON Schema allows, in its order."""
    described = schema.get("description", "")
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if {"integer", "number"} & set(types) or isinstance(schema.get("const"), int):
        yield path, described
    for choice in schema.get("anyOf", ()):
        yield from numbers(choice, path)
    for name, member in schema.get("properties", {}).items():
        yield from numbers(member, f"{path}.{name}" if path else name)
    more = schema.get("additionalProperties")
    # metrics have their names in MORE_METRICS
    if isinstance(more, dict) and path != "metrics":
        yield from ((p, d or described) for p, d in numbers(more, f"{path}.*"))
    # a list of [name, number] pairs is described where the list is
    for element in (*([schema["items"]] if schema.get("items") else []), *schema.get("prefixItems", ())):
        yield from ((p, d or described) for p, d in numbers(element, f"{path}[]"))


def picture(run: Run) -> str:
    """The first part of what `dlobd show` prints for a run, up to the largest parts, as SVG."""
    printed = io.StringIO()
    shown = Console(file=printed, force_terminal=True, color_system="truecolor", width=80, highlight=False)
    terminal.breakdown(run, shown)
    text = printed.getvalue().partition("\x1b[1mHidden inside")[0].rstrip()
    canvas = Console(file=io.StringIO(), record=True, width=80, highlight=False)
    canvas.print(Text.from_ansi(text))
    # without the web font of rich's format: a picture that asks a server for a font is not one file
    form = re.sub(r"\s*@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace("Fira Code, ", "")
    form = form.replace("<svg ", '<svg xml:space="preserve" ', 1)  # else some viewers drop what a line is indented by
    return canvas.export_svg(title="dlobd show", unique_id="dlobd", code_format=form)


def _table(header: tuple[str, ...], rows: list[Any]) -> str:
    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(header), "|" + "---|" * len(header), *map(line, rows)])


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    raise SystemExit(main())
