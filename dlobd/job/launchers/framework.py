"""The import of TensorFlow, once, in a trainer."""

from __future__ import annotations

import os
import sys

from dlobd import spans as kinds
from dlobd import tracing


def import_tensorflow() -> None:
    """Imports TensorFlow without Keras, which it would import along: a fifth of the time, for what no model here uses.

    Code that uses `tf.keras`, or imports keras, later gets it then: TensorFlow loads it when it is asked for.
    """
    with tracing.span(kinds.IMPORT_TENSORFLOW):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
        eager = "keras" in sys.modules or "tensorflow" in sys.modules
        if not eager:
            sys.modules["keras"] = None  # type: ignore[assignment]  # as if it were not there; TensorFlow goes on without
        try:
            import tensorflow  # noqa: F401
        finally:
            if not eager:
                del sys.modules["keras"]
