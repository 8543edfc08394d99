"""The native module, if it was built and is not turned off: it decodes GetRecords replies.

It is optional: without it Python does that, with the same results. ``KINESIS_SPOUT_PURE_PYTHON=1`` in the
environment turns it off.
"""

import os
from importlib import import_module
from typing import Any, Final

_WAS_TURNED_OFF: Final = os.environ.get("KINESIS_SPOUT_PURE_PYTHON", "") not in {"", "0"}


def _native() -> Any:
    if _WAS_TURNED_OFF:
        return None
    try:
        return import_module("kinesis_spout.kinesis._native")
    except ImportError:
        return None


decoder: Any = _native()
"""The module ``_native``; None: replies are decoded in Python."""
