"""A dead letter: a record that was given up, with everything needed to examine it and to send it again."""

import msgspec


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One exhausted or rejected record. As JSON, ``data`` is base64 and times are seconds since the epoch."""

    application: str
    stream: str
    shard_id: str
    sequence_number: str
    """``"123"``, or ``"123:4"`` for a user record inside an aggregate."""
    partition_key: str | None
    arrival_timestamp: float | None
    data: bytes
    attempts: int
    """How often the record was delivered, including the last time."""
    error: str
    """The last attempt's failure: the exception's type and text, or the handler's reason."""
    reason: str
    """Why: "exhausted" (the retry limit), "rejected" (the handler said so), "expired" (too old to be
    retried)."""
    died_at: float
    traceback: str | None = None
    """Where the last attempt raised, without the text of the exceptions. None: it did not raise, or the letter is
    older than this field."""
    explicit_hash_key: str | None = None
    """What the record's producer gave to choose the shard, unchanged; a redrive gives it again. Only user
    records inside aggregated ones have it. None: there is none, or the letter is older than this field."""

    @property
    def message_id(self) -> str:
        """``shardId:sequence``, which `show` and `redrive` accept."""
        return f"{self.shard_id}:{self.sequence_number}"
