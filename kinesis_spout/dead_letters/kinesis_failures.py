"""What Kinesis refuses, when it happens to dead letters: they are not durable, whatever the reason is."""

from collections.abc import Iterator
from contextlib import contextmanager

from kinesis_spout.model.errors import DeadLetterError, InvalidConfig, KinesisError


@contextmanager
def as_dead_letter_errors() -> Iterator[None]:
    """Raise what the Kinesis side raises inside as a DeadLetterError, from the same cause."""
    try:
        yield
    except (KinesisError, InvalidConfig) as error:
        raise DeadLetterError(str(error)) from (error.__cause__ or error)
