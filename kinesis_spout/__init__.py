"""Reliable Kinesis consumption for PySpark.

The names here are loaded when they are first used: executors import this package with every handler, and
need little of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kinesis_spout.handler import NotNow, Reject, RetryLater
    from kinesis_spout.kinesis_spout import KinesisSpout
    from kinesis_spout.queues.producer import KinesisProducer
    from kinesis_spout.record import Record
    from kinesis_spout.settings import SpoutConfig

    __version__: str

__all__ = ["KinesisProducer", "KinesisSpout", "NotNow", "Record", "Reject", "RetryLater", "SpoutConfig"]

_HOMES: Final = {
    "KinesisProducer": "kinesis_spout.queues.producer",
    "KinesisSpout": "kinesis_spout.kinesis_spout",
    "NotNow": "kinesis_spout.handler",
    "Record": "kinesis_spout.record",
    "Reject": "kinesis_spout.handler",
    "RetryLater": "kinesis_spout.handler",
    "SpoutConfig": "kinesis_spout.settings",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "__version__"})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - executors need none

    try:
        return version("kinesis-spout")
    except PackageNotFoundError as error:  # a copy of the folder, as with Spark's --py-files
        raise AttributeError("the version is known where kinesis-spout is installed with pip only") from error
