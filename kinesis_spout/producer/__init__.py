"""``KinesisProducer``: takes records at once, puts them in the background, and reports how each ended.

``kinesis/write`` fills the calls and puts refused records again; ``spool`` keeps what must survive a crash.
Begin with ``producer``; ``sender`` decides.
"""

from kinesis_spout.model.errors import BufferFull, InvalidRecord, ProducerClosed, RecordDropped, SpoolError
from kinesis_spout.producer.buffer import ProducerCounts
from kinesis_spout.producer.producer import KinesisProducer
from kinesis_spout.producer.tickets import BatchTicket, FailedRecord, PutResult, Ticket
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
