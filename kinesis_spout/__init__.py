"""Reliable Kinesis consumption for PySpark.

The names here are loaded when they are first used: executors import this package with every handler, and
need little of it.
"""

from typing import TYPE_CHECKING, Any, Final

from kinesis_spout.model.extras import lazy_names

if TYPE_CHECKING:
    from kinesis_spout.consumer.open_ports import open_ports
    from kinesis_spout.consumer.ports import Ports
    from kinesis_spout.kinesis_spout import KinesisSpout
    from kinesis_spout.model.errors import InvalidConfig, KinesisError, KinesisSpoutError
    from kinesis_spout.model.handler import NotNow, Reject, RetryLater
    from kinesis_spout.model.record import DeadLetter, Record
    from kinesis_spout.plain.stream_tuples import Emitted
    from kinesis_spout.producer import KinesisProducer, PutResult, Ticket
    from kinesis_spout.producer.spool import DiskSpool
    from kinesis_spout.settings import SpoutConfig
    from kinesis_spout.spark import Collector, await_termination, each_record, register, session

    __version__: str

__all__ = [
    "Collector",
    "DeadLetter",
    "DiskSpool",
    "Emitted",
    "InvalidConfig",
    "KinesisError",
    "KinesisProducer",
    "KinesisSpout",
    "KinesisSpoutError",
    "NotNow",
    "Ports",
    "PutResult",
    "Record",
    "Reject",
    "RetryLater",
    "SpoutConfig",
    "Ticket",
    "await_termination",
    "each_record",
    "open_ports",
    "register",
    "session",
]

_NAMES: Final = {
    "kinesis_spout.consumer.open_ports": ("open_ports",),
    "kinesis_spout.consumer.ports": ("Ports",),
    "kinesis_spout.kinesis_spout": ("KinesisSpout",),
    "kinesis_spout.model.errors": ("InvalidConfig", "KinesisError", "KinesisSpoutError"),
    "kinesis_spout.model.handler": ("NotNow", "Reject", "RetryLater"),
    "kinesis_spout.model.record": ("DeadLetter", "Record"),
    "kinesis_spout.plain.stream_tuples": ("Emitted",),
    "kinesis_spout.producer": ("KinesisProducer", "PutResult", "Ticket"),
    "kinesis_spout.producer.spool": ("DiskSpool",),
    "kinesis_spout.settings": ("SpoutConfig",),
    "kinesis_spout.spark": ("Collector", "await_termination", "each_record", "register", "session"),
}

_load, _listed = lazy_names(__name__, _NAMES)


def __getattr__(name: str) -> Any:
    return _version() if name == "__version__" else _load(name)


def __dir__() -> list[str]:
    return [*_listed(), "__version__"]


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - executors need none

    try:
        return version("kinesis-spout")
    except PackageNotFoundError as error:  # a copy of the folder, as with Spark's --py-files
        raise AttributeError("the version is known where kinesis-spout is installed with pip only") from error
