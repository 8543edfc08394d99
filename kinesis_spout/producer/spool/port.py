"""The durable buffer of a producer, as a port."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from kinesis_spout.kinesis.write.put_records import Entry


class Spooled(NamedTuple):
    number: int
    """Identifies it in its spool; grows with each record of one spool."""
    entry: Entry


class Spool(Protocol):
    """Keeps records until they are confirmed. Every method may be called from any thread."""

    @property
    def stream(self) -> str | None:
        """The stream of these records, by name or ARN; None if the spool does not know."""
        ...

    @property
    def size_bytes(self) -> int:
        """Its size on the disk, in bytes."""
        ...

    def append(self, *entries: Entry) -> int:
        """Take records over, all or none of them, and return the number of the first; the others follow it.

        On return they are as durable as the spool's policy says.

        Raises:
            SpoolError: none of them is in the spool (the disk is full, the file cannot be written); those
                appended before are.
        """
        ...

    def confirm(self, numbers: Iterable[int]) -> None:
        """Forget records: they are on the stream, or were given up for good.

        This may become durable after it returns. A crash before that brings them again.

        Raises:
            SpoolError: they may come again.
        """
        ...

    def recovered(self, limit: int) -> Sequence[Spooled]:
        """Return up to ``limit`` unconfirmed records of earlier owners, oldest first, each once.

        Empty when there are no more. Returned records belong to this spool now, and must be confirmed here.

        Raises:
            SpoolDamaged: says what is lost; each damage once. The next call continues behind it.
            SpoolError: it cannot be read now. It is called again later.
        """
        ...

    def close(self) -> None:
        """Make everything durable, and release the folder. Idempotent."""
        ...
