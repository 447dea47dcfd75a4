"""Payloads of messages: lists of buffer sizes, by the schemes of TF-gRPC-Bench (arXiv 1804.01138, tables 1 and 2).

    uniform   the buffers are spread evenly over the size classes; a remainder goes to the largest classes
    random    the class of each buffer is drawn, with a seed
    skew      60 %, 30 % and 10 % of the buffers are of the preferred class and of the two others, the nearest first
    10,4KiB   a list of sizes, one per buffer

The paper gives no meaning of KB and MB; here they are 2^10 and 2^20 bytes.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dlobd.errors import UsageError

KIB, MIB = 1 << 10, 1 << 20

CLASSES = {"small": 10, "medium": 10 * KIB, "large": MIB}
"""Default size in bytes of each class."""

BUFFERS = 10  # default number of buffers of a message

SKEW = (6, 3, 1)
"""Tenths of the buffers, by class."""

MOST_BUFFERS = 1024  # UIO_MAXIOV of Linux

_SIZE = re.compile(r"(\d+)(B|K|M|G|KiB|MiB|GiB)?")
_UNITS = {"": 1, "B": 1, "K": KIB, "M": MIB, "G": 1 << 30, "KiB": KIB, "MiB": MIB, "GiB": 1 << 30}


@dataclass(frozen=True, slots=True)
class Payload:
    """Sizes of a message's buffers, in bytes.

    serialized: True if the buffers become one protobuf message, inside of the timed section.
    """

    name: str
    sizes: tuple[int, ...]
    serialized: bool = False

    @property
    def bytes(self) -> int:
        return sum(self.sizes)


def size_bytes(text: str) -> int:
    """Parse a size such as 4096, 64K, 64KiB or 1M; units are powers of 1,024. Raises UsageError."""
    found = _SIZE.fullmatch(text.strip())
    if not found or not int(found[1]):
        raise UsageError(f"{text!r} is no size of at least one byte.", "write it as in 8, 64KiB or 1MiB")
    return int(found[1]) * _UNITS[found[2] or ""]


def name_of(size: int) -> str:
    """Return a size in the largest unit that needs no fraction."""
    unit = next((unit for unit in ("GiB", "MiB", "KiB") if size >= _UNITS[unit] and size % _UNITS[unit] == 0), "B")
    return f"{size // _UNITS[unit]} {unit}"


def payload(
    scheme: str,
    buffers: int = BUFFERS,
    classes: Sequence[str] = tuple(CLASSES),
    prefer: str = "large",
    seed: int = 0,
    serialized: bool = False,
) -> Payload:
    """Return the payload of a scheme, or of a list of sizes. Raises UsageError."""
    if not 1 <= buffers <= MOST_BUFFERS:
        raise UsageError(f"{buffers} buffers are not possible.", f"choose 1 to {MOST_BUFFERS}")
    for name in (*classes, prefer):
        if name not in CLASSES:
            raise UsageError(f"Unknown size class {name!r}.", f"choose {', '.join(CLASSES)}")
    if scheme not in SCHEMES:
        sizes = tuple(size_bytes(part) for part in scheme.split(","))
        if len(sizes) > MOST_BUFFERS:
            raise UsageError(f"{len(sizes)} buffers are not possible.", f"choose 1 to {MOST_BUFFERS}")
        return Payload(name_of(sizes[0]) if len(sizes) == 1 else scheme, sizes, serialized)
    if scheme != "uniform" and len(classes) < 2:
        raise UsageError(f"Scheme {scheme} needs at least two size classes.", f"choose from {', '.join(CLASSES)}")
    largest_first = sorted(classes, key=CLASSES.__getitem__, reverse=True)
    if scheme == "random":
        drawn = random.Random(seed)
        chosen = [drawn.choice(largest_first) for _ in range(buffers)]
    elif scheme == "skew":
        order = _nearest(largest_first, prefer)
        total = sum(SKEW[: len(order)])
        ends = [round(buffers * sum(SKEW[: number + 1]) / total) for number in range(len(order))]
        chosen = [name for name, end, start in zip(order, ends, [0, *ends], strict=False) for _ in range(end - start)]
    else:
        chosen = sorted((largest_first[place % len(classes)] for place in range(buffers)), key=largest_first.index)
    return Payload(scheme, tuple(CLASSES[name] for name in chosen), serialized)


def _nearest(largest_first: Sequence[str], prefer: str) -> list[str]:
    """Return the classes, the preferred class first; of equally near classes, the larger is first."""
    if prefer not in largest_first:
        raise UsageError(f"The preferred class {prefer} is not among {', '.join(largest_first)}.", "change --classes")
    place = largest_first.index(prefer)
    return sorted(largest_first, key=lambda name: abs(largest_first.index(name) - place))


SCHEMES = ("uniform", "random", "skew")
