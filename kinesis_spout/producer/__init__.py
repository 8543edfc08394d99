"""``KinesisProducer``: takes records at once, puts them in the background, and reports how each ended.

``kinesis/write`` fills the calls and puts refused records again; ``spool`` keeps what must survive a crash.
Begin with ``producer``; ``outbox`` decides.
"""

from kinesis_spout.model.errors import BufferFull, InvalidRecord, ProducerClosed, RecordDropped, SpoolError
from kinesis_spout.producer.batch import BatchTicket, FailedRecord
from kinesis_spout.producer.inbox import ProducerCounts
from kinesis_spout.producer.producer import KinesisProducer
from kinesis_spout.producer.ticket import PutResult, Ticket
from kinesis_spout.settings.producer_config import ProducerSettings

__all__ = [
    "BatchTicket",
    "BufferFull",
    "FailedRecord",
    "InvalidRecord",
    "KinesisProducer",
    "ProducerClosed",
    "ProducerCounts",
    "ProducerSettings",
    "PutResult",
    "RecordDropped",
    "SpoolError",
    "Ticket",
]
