"""The errors of the pure core.

ShardStateError
├── InvalidSequenceNumber   text that is no sequence number
├── InvalidCheckpoint       stored bytes that are no checkpoint, or damaged, or of a newer version
├── InvalidStoredForm       stored bytes that are no member or no assignment, or of a newer version
├── InvalidLineage          shards that are their own ancestors
└── OutOfOrder              records reported in an order that a shard cannot produce
"""


class ShardStateError(Exception):
    """Root of everything the core raises on purpose."""

    retriable = False


class InvalidSequenceNumber(ShardStateError, ValueError):  # noqa: N818 - the field's word is the name
    """A text is not a sequence number. Names the text and the accepted forms."""


class InvalidCheckpoint(ShardStateError, ValueError):  # noqa: N818
    """Stored bytes cannot be read as a checkpoint. Never "no checkpoint": that would start afresh."""


class InvalidStoredForm(ShardStateError, ValueError):  # noqa: N818
    """Stored bytes cannot be read as a member of a group, or as its assignment."""


class InvalidLineage(ShardStateError, ValueError):  # noqa: N818
    """Shards are their own ancestors. Names two of them; nobody could ever read them."""


class OutOfOrder(ShardStateError, ValueError):  # noqa: N818
    """A record was reported at or before one already reported of the same shard: a defect of the caller."""
