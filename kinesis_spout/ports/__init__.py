"""What a consumer needs from the outside, as small protocols.

Each has one suite of contract tests in ``tests/contract``, for the fake in ``kinesis_spout.testing`` and the
real adapter. Every method is called from one thread at a time per object, unless it says otherwise. Begin
with ``stream``, then ``checkpoint_store``; ``coordinator`` is the first port between the processes of an
application.
"""

from kinesis_spout.model.errors import (
    CheckpointUnreadable,
    DeadLetterError,
    StoreError,
    StoreUnavailable,
    StreamRecreated,
)
from kinesis_spout.ports.checkpoint_store import Attachment, CheckpointStore, CheckpointWrite, CommitResult
from kinesis_spout.ports.coordinator import (
    DEFAULT_SESSION_TIMEOUT_SECONDS,
    MAX_SESSION_TIMEOUT_SECONDS,
    Coordinator,
)
from kinesis_spout.ports.dead_letter_sink import DeadLetterSink
from kinesis_spout.ports.election import Elected, Election
from kinesis_spout.ports.group import Group
from kinesis_spout.ports.stream import Page, ShardGetter, ShardLister, StreamSummary, is_same_creation
from kinesis_spout.ports.term import Term

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
