"""Memory that another process on the same machine can map, to read a page without a copy of it."""

import logging
import mmap
import os
import weakref
from typing import Final

import pyarrow as pa

_WORTHWHILE_BYTES: Final = 512 * 1024
"""Smaller pages are sent as cheaply."""
_MOST_PAGES: Final = 128
"""Each takes two descriptors, of which many systems allow a process a thousand."""

_log = logging.getLogger(__name__)


_living: "weakref.WeakSet[SharedMemory]" = weakref.WeakSet()


class SharedMemory:
    """A record batch in memory that has a descriptor. Immutable; freed when nobody refers to it any more."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        """Copy the batch. Raises OSError if there are no descriptors left."""
        self.descriptor = os.memfd_create("kinesis-page", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, self.descriptor)
        _living.add(self)
        with open(self.descriptor, "wb", buffering=0, closefd=False) as file:
            with pa.ipc.new_stream(file, batch.schema) as writer:
                writer.write_batch(batch)
            self.size = file.tell()

    @staticmethod
    def is_supported() -> bool:
        """Tell whether this system has it (Linux)."""
        return hasattr(os, "memfd_create")

    def batch(self) -> pa.RecordBatch:
        """Give the batch, as it lies there; it stays for as long as somebody refers to what is given."""
        mapped = mmap.mmap(self.descriptor, self.size, prot=mmap.PROT_READ)
        return batch_in(pa.py_buffer(mapped))


def batch_in(buffer: pa.Buffer) -> pa.RecordBatch:
    """Give the batch that a ``SharedMemory`` has written. Nothing is copied."""
    return pa.ipc.open_stream(buffer).read_next_batch()


def shared(batch: pa.RecordBatch) -> SharedMemory | None:
    """Copy a batch to where other processes can map it; None if that is not possible, or not worthwhile."""
    if batch.nbytes < _WORTHWHILE_BYTES or not SharedMemory.is_supported() or len(_living) >= _MOST_PAGES:
        return None
    try:
        return SharedMemory(batch)
    except OSError as error:
        _log.info("a page cannot be put where tasks could map it, so its bytes are sent: %r", error)
        return None
