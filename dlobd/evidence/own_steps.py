"""Finds the training steps among the recorded calls of a user's main function.

Steps are the parts of code marked by `dlobd.step()`. Without any, they are the outermost calls of tf.functions that
write a trainable variable, and Keras's calls of `train_function`. A call that raised an exception is no step.

Several tf.functions may train. Functions that are called in turn, such as generator and discriminator, belong to one
step: the function with the most calls counts. Functions of other parts of the script add up, as in a pre-training and a
training. A function that the script creates again is the same function.
"""

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np

from dlobd import spans as kinds
from dlobd.columns import NONE, Flags, Ints
from dlobd.evidence.recorded_spans import RecordedSpans

KERAS = 0
"""Number of the function of Keras's own steps; tf.functions count from 1."""

_CALL = kinds.CALL.partition("{}")[0]


def numbered(spans: RecordedSpans) -> RecordedSpans:
    """Return the spans of a process; those of steps, in all its main functions, are numbered spans `first step` and
    `step`."""
    for main in spans.mains:
        inside = (main.start_ns <= spans.start_ns) & (spans.start_ns < main.end_ns)
        whole = inside & ~spans.truncated & ~spans.has("error")
        marked = np.flatnonzero(whole & spans.is_kind(kinds.STEP))
        trains = whole & _is_call(spans) & spans.with_attrs(lambda attrs: bool(attrs.get("trains")))
        rows = marked if len(marked) else _steps(spans, np.flatnonzero(trains))
        rows = rows[np.argsort(spans.start_ns[rows], kind="stable")]
        if not len(marked):
            spans = _with_function(spans, rows)
        kind, call = spans.kind.copy(), spans.call.copy()
        kind[rows], call[rows] = len(spans.kinds) + 1, np.arange(len(rows))
        kind[rows[:1]] = len(spans.kinds)
        names = [(row.layer, str(row)) for row in (kinds.FIRST_STEP, kinds.STEP)]
        spans = replace(spans, kind=kind, call=call, kinds=[*spans.kinds, *names])
    return spans


def count(spans: RecordedSpans, observed: bool = True) -> int | None:
    """Return the number of steps among numbered spans; None if there is none, or if a call may be more than one.

    observed: False if hooks are missing, so that only marked steps count."""
    steps = spans.where(spans.is_step)
    if not steps.has("function").any():
        return len(steps) or None
    if not observed:
        return None
    # in eager mode a tf.function runs as Python code, whose variables are not listed
    unclear = _is_call(spans) & spans.with_attrs(lambda attrs: attrs.get("trains", True) is None)
    known = steps.values("steps", 1)
    return None if (known == NONE).any() or unclear.any() else int(known.sum())


def lengths_ns(spans: RecordedSpans) -> tuple[int | None, list[int]]:
    """Return the length of the first step, and the sorted lengths of the others; unknown if a call has several."""
    steps = spans.where(spans.is_step)
    if (steps.values("steps", 1) != 1).any():
        return None, []
    first_ns = next(iter(steps.ns[steps.call == 0].tolist()), None)
    return first_ns, np.sort(steps.ns[steps.call > 0]).tolist()


def _is_call(spans: RecordedSpans) -> Flags:
    return spans.is_any(lambda layer, name: name.startswith(_CALL))


def _with_function(spans: RecordedSpans, rows: Ints) -> RecordedSpans:
    """Add the name of the tf.function to the attributes of calls."""
    pairs, place = np.unique(np.stack([spans.attrs[rows], spans.kind[rows]]), axis=1, return_inverse=True)
    names = [spans.kinds[kind][1].removeprefix(_CALL) for kind in pairs[1].tolist()]
    attrs, before = spans.attrs.copy(), pairs[0].tolist()
    attrs[rows] = len(spans.attributes) + place
    more = [{**spans.attributes[one], "tf_function": name} for one, name in zip(before, names, strict=True)]
    return replace(spans, attrs=attrs, attributes=[*spans.attributes, *more])


def _steps(spans: RecordedSpans, calls: Ints) -> Ints:
    """Return the calls of the function that counts, of each group of functions."""
    if not len(calls):
        return calls
    function = _functions(spans, calls)
    numbers, counts = np.unique(function, return_counts=True)
    calls_of = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    pairs = np.sort(np.stack([function[:-1], function[1:]]), axis=0)
    turns = Counter(map(tuple, pairs[:, pairs[0] != pairs[1]].T.tolist()))
    groups = [{one} for one in dict.fromkeys(function.tolist())]
    for pair, times in turns.items():
        # two functions that are called in turn have two turns a step
        if times >= min(calls_of[one] for one in pair):
            joined = [group for group in groups if group & {*pair}]
            groups = [group for group in groups if not group & {*pair}] + [set().union(*joined)]
    chosen = [max(group, key=calls_of.__getitem__) for group in groups]
    return calls[np.isin(function, chosen)]


def _functions(spans: RecordedSpans, calls: Ints) -> Ints:
    """Return the function of each call. Functions of one name whose calls do not overlap in time are one function."""
    numbers = spans.values("function", KERAS)[calls]
    known, first, place = np.unique(numbers, return_index=True, return_inverse=True)
    last = len(calls) - 1 - np.unique(numbers[::-1], return_index=True)[1]
    ends_ns = dict(zip(known.tolist(), spans.end_ns[calls[last]].tolist(), strict=True))
    same: dict[int, int] = {}
    latest: dict[str, list[int]] = defaultdict(list)  # the last function of each series of one name
    for at in np.sort(first).tolist():
        number, name = int(numbers[at]), spans.kinds[spans.kind[calls[at]]][1]
        ended = next((one for one in latest[name] if ends_ns[one] <= spans.start_ns[calls[at]]), None)
        if ended is not None:
            latest[name].remove(ended)
        latest[name].append(number)
        same[number] = number if ended is None else same[ended]
    found: Ints = np.array([same[number] for number in known.tolist()], np.int64)[place]
    return found
