"""The ports of a consumer: what it needs from the outside, as small protocols.

Each has one suite of contract tests in ``tests/contract``, for the fake in ``kinesis_spout.testing`` and the
real adapter. Every method is called from one thread at a time per object, unless it says otherwise. Begin
with ``stream_reading``, then ``stores``; ``membership`` is the first port between the processes of an
application.
"""

from kinesis_spout.model.errors import (
    CheckpointUnreadable,
    DeadLetterError,
    StoreError,
    StoreUnavailable,
    StreamRecreated,
)
from kinesis_spout.ports.leadership import Elected, Election, Term
from kinesis_spout.ports.membership import (
    DEFAULT_SESSION_TIMEOUT_SECONDS,
    MAX_SESSION_TIMEOUT_SECONDS,
    Coordinator,
    Group,
)
from kinesis_spout.ports.stores import (
    Attachment,
    CheckpointStore,
    CheckpointWrite,
    CommitResult,
    DeadLetterSink,
)
from kinesis_spout.ports.stream_reading import Page, ShardGetter, ShardLister, StreamSummary, is_same_creation

__all__ = [
    "DEFAULT_SESSION_TIMEOUT_SECONDS",
    "MAX_SESSION_TIMEOUT_SECONDS",
    "Attachment",
    "CheckpointStore",
    "CheckpointUnreadable",
    "CheckpointWrite",
    "CommitResult",
    "Coordinator",
    "DeadLetterError",
    "DeadLetterSink",
    "Elected",
    "Election",
    "Group",
    "Page",
    "ShardGetter",
    "ShardLister",
    "StoreError",
    "StoreUnavailable",
    "StreamRecreated",
    "StreamSummary",
    "Term",
    "is_same_creation",
]
