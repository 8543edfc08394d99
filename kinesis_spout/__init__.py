"""Reliable Kinesis consumption for PySpark.

The names here are loaded when they are first used: executors import this package with every handler, and
need little of it.
"""

from typing import TYPE_CHECKING, Any, Final

from kinesis_spout.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from kinesis_spout.consumer.open_ports import open_ports
    from kinesis_spout.consumer.ports import Ports
    from kinesis_spout.kinesis_spout import KinesisSpout
    from kinesis_spout.model.dead_letter import DeadLetter
    from kinesis_spout.model.errors import InvalidConfig, KinesisError, KinesisSpoutError
    from kinesis_spout.model.handler import NotNow, Reject, RetryLater
    from kinesis_spout.model.record import Record
    from kinesis_spout.plain.stream_tuples import Emitted
    from kinesis_spout.producer import KinesisProducer, PutResult, Ticket
    from kinesis_spout.producer.spool import SqliteSpool
    from kinesis_spout.settings import SpoutConfig
    from kinesis_spout.spark import Collector, each_record, register, session

    __version__: str

__all__ = [
    "Collector",
    "DeadLetter",
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
    "SqliteSpool",
    "Ticket",
    "each_record",
    "open_ports",
    "register",
    "session",
]

_HOMES: Final = {
    "Collector": "kinesis_spout.spark",
    "DeadLetter": "kinesis_spout.model.dead_letter",
    "Emitted": "kinesis_spout.plain.stream_tuples",
    "InvalidConfig": "kinesis_spout.model.errors",
    "KinesisError": "kinesis_spout.model.errors",
    "KinesisProducer": "kinesis_spout.producer",
    "KinesisSpout": "kinesis_spout.kinesis_spout",
    "KinesisSpoutError": "kinesis_spout.model.errors",
    "NotNow": "kinesis_spout.model.handler",
    "Ports": "kinesis_spout.consumer.ports",
    "PutResult": "kinesis_spout.producer",
    "Record": "kinesis_spout.model.record",
    "Reject": "kinesis_spout.model.handler",
    "RetryLater": "kinesis_spout.model.handler",
    "SpoutConfig": "kinesis_spout.settings",
    "SqliteSpool": "kinesis_spout.producer.spool",
    "Ticket": "kinesis_spout.producer",
    "each_record": "kinesis_spout.spark",
    "open_ports": "kinesis_spout.consumer.open_ports",
    "register": "kinesis_spout.spark",
    "session": "kinesis_spout.spark",
}

_load, _names = lazy_names(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _version() if name == "__version__" else _load(name)


def __dir__() -> list[str]:
    return [*_names(), "__version__"]


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - executors need none

    try:
        return version("kinesis-spout")
    except PackageNotFoundError as error:  # a copy of the folder, as with Spark's --py-files
        raise AttributeError("the version is known where kinesis-spout is installed with pip only") from error
