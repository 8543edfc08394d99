"""Memory that another process on the same machine can map, to read a page without a copy of it."""

import logging
import mmap
import os
import weakref
from typing import Final, Self

import pyarrow as pa

_WORTHWHILE_BYTES: Final = 512 * 1024
"""Smaller pages are sent as cheaply."""
_MOST_PAGES: Final = 128
"""Each takes two descriptors, of which many systems allow a process a thousand."""

_log = logging.getLogger(__name__)


_living: "weakref.WeakSet[SharedMemory]" = weakref.WeakSet()


class SharedMemory:
    """A record batch in memory that has a descriptor. Immutable; freed when nobody refers to it any more.

    Args:
        descriptor: of the memory; owned from now on.
        size: of what is in it, in bytes.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.size = size
        weakref.finalize(self, os.close, descriptor)
        _living.add(self)

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Self:
        """Copy a batch. Raises OSError if there are no descriptors or no memory left."""
        descriptor = os.memfd_create("kinesis-page", os.MFD_CLOEXEC)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                with pa.ipc.new_stream(file, batch.schema) as writer:
                    writer.write_batch(batch)
                size = file.tell()
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor, size)

    @staticmethod
    def is_supported() -> bool:
        """Tell whether this system has it (Linux)."""
        return hasattr(os, "memfd_create")

    @staticmethod
    def has_room() -> bool:
        """Tell whether this process may have more of it: every one takes descriptors."""
        return SharedMemory.is_supported() and len(_living) < _MOST_PAGES

    def batch(self, *, will_read_all: bool = False) -> pa.RecordBatch:
        """Give the batch, as it lies there; it stays for as long as somebody refers to what is given."""
        # Mapped at once, all of it costs a tenth of what page after page does.
        flags = mmap.MAP_SHARED | (mmap.MAP_POPULATE if will_read_all else 0)
        mapped = mmap.mmap(self.descriptor, self.size, flags=flags, prot=mmap.PROT_READ)
        return pa.ipc.open_stream(pa.py_buffer(mapped)).read_next_batch()


def shared(batch: pa.RecordBatch) -> SharedMemory | None:
    """Copy a batch to where other processes can map it; None if that is not possible, or not worthwhile."""
    if batch.nbytes < _WORTHWHILE_BYTES or not SharedMemory.has_room():
        return None
    try:
        return SharedMemory.of(batch)
    except OSError as error:
        _log.info("a page cannot be put where tasks could map it, so its bytes are sent: %r", error)
        return None
