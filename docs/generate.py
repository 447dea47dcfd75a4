"""Makes what in docs/ must not drift from the code: `layers.md`, `metrics.md`, `trust.md`, `selftest.md`, a page a
command in `commands/`, and the terminal picture.

    python docs/generate.py                    write all pages
    python docs/generate.py --check            exit 1 if one of them is stale
    python docs/generate.py picture BUNDLE     write breakdown.svg from a real run

Names, units and descriptions come from `dlobd.layers`, `dlobd.attribution.trust` and the schema of run.json. How a
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

from dlobd.attribution.sources.kinds import KINDS
from dlobd.attribution.statistics import fewest
from dlobd.attribution.trust.checks import RULES
from dlobd.bundle import store
from dlobd.bundle.run import Run
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.report import terminal
from dlobd.selftest import report
from dlobd.selftest.injection_points import POINTS
from dlobd.selftest.plans import SIZES_S
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
source](trust.md#missing-evidence) would have told. Time that belongs to a layer, but that no evidence explains, is its
`unexplained` part; the report hatches both and counts them together.

## Names and degrees of evidence

The kinds of spans of each layer, and how well the own time of each is known: two of the
[degrees](methodology.md#degrees-of-evidence) of evidence. A star is the variable part of a name. A few names occur in
several layers: the same call on behalf of each of them.

{degrees}

The colours are from the colour-blind-safe Okabe-Ito palette.
"""

TRUST_PAGE = """\
# Trust

<!-- Made by docs/generate.py; change that, or the docstrings in dlobd/attribution/trust. -->

A run is `ok` if its job ended well and no check fails. The first check that fails makes it `invalid`, and its message
is the `reason`. A failed job is `failed`, whatever its checks say.

## Checks

A check compares one quantity from two independent sources. It detects measurement bugs of dlobd, Spark or Hadoop.
`checks` in run.json has the code, the verdict, a message and both figures. `dlobd show`, the page and `dlobd verify`
list the checks that did not pass; `dlobd verify --full` lists all.

| Verdict | Meaning |
|---|---|
| `pass` | the two figures agree |
| `fail` | they contradict each other, and nothing in the evidence explains it |
| `unknown` | a source is missing or ended early, or the difference may be harmless; `message` has the reason |

A check that does not apply to a run is left out: plain processes have no HDFS, and dlobd does not know the right result
of your own script. A difference may be harmless if a DataNode died, Spark repeated a task, an HDFS client retried, or
the cluster is external. A check with a source that was killed early is `unknown`. So a healthy run stays `ok`, and its
report is at worst less well supported.

{checks}

The docstring of each check in `dlobd/attribution/trust` names the commit or the run in which it failed for a good
reason, or says that it has not failed yet.

## Missing evidence

"Not explained: 0.000 s" must mean that the time was observed. So dlobd tests each run for the sources that it must
have, and each file for its begin and its end. A missing source is a warning. It names the source, the sign of its
absence, and the facts that are unknown without it.

If the breakdown depends on the source, the check `evidence-complete` fails. The time of spans that may hide what the
source records is `unattributed`; the highest value of each layer in question includes it. Other missing sources only
leave figures, checks or bounds out.

{sources}

`evidence/collected.json` lists each collected file with its size, so that a file that was removed or truncated later is
noticed. Of a failed or interrupted run, only the collected files must be there: a killed process leaves less. On an
external cluster the logs of daemons do not decide, but the logs of containers and the spans do. By hand, the driver's
own files have to be brought along ([cluster](cluster.md#by-hand)).

## dlobd verify

`dlobd verify [RUN]` needs no cluster, and nothing but the bundle.

| Question | Finds |
|---|---|
| files are as sealed | a changed, added or missing file, unless the bundle was sealed again |
| hash is as noted (`--against HASH`) | any change, whoever sealed it |
| configuration, key and job agree | settings that the job did not get |
| report follows from the evidence | a figure of run.json that does not come out of the evidence again |
| the checks of the run, computed again | sources that contradict each other |

Exit code 7 if an answer is no or a check fails. Hashes are unkeyed: whoever changes a file can seal the bundle again.
`dlobd run` and `dlobd show` print the bundle's hash, which covers all its files. Note it where the bundle's holder
cannot change it, and compare it with `--against`.

## What the breakdown cannot distinguish

- In cluster mode, an ApplicationMaster that takes or launches its containers late: up to 94 % of such a delay counts as
  YARN's `hand out executor container`, as the [self-test](selftest.md) shows.
- A NodeManager that takes a start request late, from an ApplicationMaster that sends it late.
- HDFS's part of a task's input interval, from the JVM's own part, such as loading classes: the bound is wide.
"""

SELFTEST_PAGE = """\
# Self-test

<!-- Made by docs/generate.py from docs/selftest.json, the output of `dlobd selftest --json`. -->

Does the breakdown blame the right layer? `dlobd selftest` injects delays of known size into real runs on the embedded
cluster, in every layer, and looks for each delay in the breakdown.

```
dlobd selftest             five runs that cover every point, about five minutes; exit code 6 if a delay is not found
dlobd selftest --full      every point with {sizes}, and controls, about 80 minutes
```

The test is blind: the injector measures each delay by its own clock, in a log that attribution never reads.

## Scoring

**Each delay.** The interval of the delay is compared with the attributed wall. Time in the delayed layer is recovered;
time in other layers, unexplained time and unattributed time are not. A delay is *found* if at least {right:.0%} of it
are in its own layer, and at most {wrong:.0%} in any other.

**Only the time in which the delay held up the job counts.** On a busy machine, a client may still compute while the
daemon that it will call next is already stopped. This time is rightly the client's. The logs of Hadoop's RPC clients
show it, independently of the breakdown: a stopped daemon counts from the call that waits for it at the end of the stop.

**Hidden delays are repeated, at most twice, and reported.** A delay is *hidden*, if

- it held up the job for less than {held_up:.0%} of its length, or
- a JVM was stopped inside an RPC call, so that the called daemon looks slow, or
- the critical path moved on: spans of other layers, which it passed through meanwhile, began or ended within the delay.

Hidden delays, and delays that were not injected, run again by themselves. The output lists every hidden delay with its
blamed layers, and every repetition. A delay that is hidden in all three runs fails the self-test. Without these two
rules, 2 of 1,080 delays of the full self-test of 2026-11-25 failed: a client computed for 12 of 50 ms while the
NameNode was stopped (`hdfs/staging`), and 1 s of an ApplicationMaster was blamed on HDFS (`spark/am-request`).

**Everything else is *wrong*, and is not repeated.** If a span of another layer covers a delay that held up the job, the
self-test fails at once. Unit tests plant such errors: a breakdown that gives HDFS's spans to Spark, and a breakdown
that gives all time to one layer (`tests/unit/test_selftest.py`).

**Layer totals** (`--full`). Each run with delays has a control directly before or after it, with the same delays of
length 0. The layer's time in the run minus its time in the control must be the injected time, later effects included.
Six blocks give an interval of the median error with a coverage of 96.9 %. Target: at least {holding:.0%} of the
intervals contain zero. There is no correction for the number of rows. A first run, not scored, warms up the cluster.

**Coverage.** The share of a control's wall in spans that contained some delay. Target: at least {touched:.0%}. "Without
sleeps" excludes waits of known length, in which no work happens that could be delayed.

## Injection points

{points}

- `signal`: SIGSTOP, from a line of a log on. To other processes this looks like a hung daemon or a paused machine.
- `application`: another application, through YARN.
- `control group`: a limit of the DataNodes' disk reads. Only its sum is known, so that the totals score it. It needs
  root, a block device, and the controller blkio of control groups version 1; `--full` reports if it is left out.
- `hook`: dlobd's code waits inside the process, where nothing outside knows the moment.

"While the trainer wants it": the hook first waits until the trainer asks, and the delay counts from then. Runs have one
rank where a second one could continue meanwhile. Delays of the layer `channel` must be found in the delayed part: pack,
wait for peers, wire or unpack. The [mini-cluster](cluster.md#the-mini-cluster) slows a channel. The five runs leave out
`user`, which needs a user's own script.

## Result

{facts}

Seconds over all sizes; the smallest recovered share of a delay, and the largest share in another layer.

{delays}

Blamed layers in seconds; one row per delayed layer.

{matrix}

recovered = slope x held up + intercept. With slope 1 and intercept 0 nothing is lost.

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
    "checks[].left": ("as its source says", "the source that `left_source` names"),
    "checks[].right": ("as its source says", "the source that `right_source` names"),
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
        "trust.md": trust_page(),
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


def trust_page() -> str:
    """Returns the page on checks, missing evidence and `dlobd verify`."""
    checks = [(f"`{rule.code}`", rule.description, *rule.sources) for rule in RULES]
    sources = [
        (kind.name, ", ".join(f"`{glob}`" for glob in kind.files), kind.unknown, "yes" if kind.decides else "no")
        for kind in KINDS
    ]
    return TRUST_PAGE.format(
        checks=_table(("Check", "What must hold", "Left figure", "Right figure"), checks),
        sources=_table(("Source", "Files", "Unknown without it", "Breakdown depends on it"), sources),
    )


def selftest_page() -> str:
    """Returns the tables of a full self-test, as `dlobd selftest` prints them."""
    whole = json.loads((DOCS / "selftest.json").read_text())
    points = [(f"`{p.name}`", p.by, p.how, "often" if p.often else "once") for p in POINTS.values()]
    sizes = [f"{seconds:g} s" for seconds in SIZES_S]
    return SELFTEST_PAGE.format(
        sizes=f"{', '.join(sizes[:-1])} and {sizes[-1]}",
        points=_table(("Point", "By", "What", "Per run"), points),
        facts="\n".join(f"- {fact}" for fact in whole["facts"]),
        delays=_table(report.DELAYS, report.by_point(whole)),
        matrix=_table(("delayed", *report.columns(whole)), report.matrix_rows(whole)),
        lines=_table(report.LINES, report.line_rows(whole)),
        beyond=_beyond_delays(whole),
        verdict="\n".join(f"- {line.capitalize()}." for line in report.verdicts(whole)),
        **whole["target"],
    )


def _beyond_delays(whole: dict[str, Any]) -> str:
    """Returns the tables of totals and coverage, if the result has them."""
    totals = "This result is from the five runs. They have no controls, and so no totals."
    if whole["totals"]:
        table = _table(report.TOTALS, report.total_rows(whole))
        totals = f"Layer totals: run with delays minus control.\n\n{table}"
    covered = _table(report.COVERED, report.covered_rows(whole))
    heading = "Share of the wall in spans with a delay, and the longest spans without one."
    return f"{totals}\n\n{heading}\n\n{covered}"


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
