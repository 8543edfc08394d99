"""AWS' own module for aggregated records, which ours is compared with."""

import importlib
import sys
import warnings
from typing import Any


def aws(name: str) -> Any:
    """Import a module of AWS' package, which changes ``sys.path`` and has protobuf's code of an older version."""
    path = list(sys.path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(f"aws_kinesis_agg.{name}")
    finally:
        sys.path[:] = path
