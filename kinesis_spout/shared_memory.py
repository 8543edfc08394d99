"""Memory that another process on the same machine can map, to read a page without a copy of it.

New memory is dear: before a page is copied there, the system finds and clears every 4 KB of it, which takes
longer than the copy. So a pool keeps memory that was used, and uses it again. It may, once nobody can see what
is in it: neither this process, where every array refers to the memory that it lies in, nor a process that it
was passed on to, which says so when its last array is gone. Memory that somebody took with them is never
written again: who has it may map it for ever.
"""

import logging
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Self

import pyarrow as pa

from kinesis_spout.clock import Clock

_WORTHWHILE_BYTES: Final = 512 * 1024
"""Smaller pages are sent as cheaply."""
_MOST_PAGES: Final = 128
"""Each takes two descriptors, of which many systems allow a process a thousand."""
_BLOCK_BYTES: Final = 1024 * 1024
"""Memory comes in multiples of it, so that pages of nearly the same size can have the same."""
_STREAM_BYTES: Final = 64
"""What Arrow writes beside a schema and a batch, at most."""
_IDLE_SECONDS: Final = 60.0
"""So long memory is kept that nobody needs."""

_log = logging.getLogger(__name__)


class SharedMemory:
    """A record batch in memory that has a descriptor. Freed when nobody refers to it or to its batch any more.

    Args:
        descriptor: of the memory.
        size: of what is in it, in bytes.
        block: what it is a part of; None if it is another process's.
    """

    def __init__(self, descriptor: int, size: int, block: "_Block | None" = None) -> None:
        self.descriptor = descriptor
        self.size = size
        self._block = block
        self._mapped = None if block is None else block.mapped

    @classmethod
    def received(cls, descriptor: int, size: int) -> Self:
        """Own memory that another process passed on."""
        memory = cls(descriptor, size)
        memory.when_released(os.close, descriptor)
        _living.add(memory)
        return memory

    @staticmethod
    def is_supported() -> bool:
        """Tell whether this system has it (Linux)."""
        return hasattr(os, "memfd_create")

    @staticmethod
    def has_room() -> bool:
        """Tell whether this process may have more of it: every one takes descriptors."""
        return SharedMemory.is_supported() and len(_living) < _MOST_PAGES

    def batch(self, *, will_read_all: bool = False) -> pa.RecordBatch:
        """Give the batch, as it lies there. Every array of it refers to this memory, and so does a part of one."""
        if self._mapped is None:
            # Mapped at once, all of it costs a tenth of what page after page does.
            flags = mmap.MAP_SHARED | (mmap.MAP_POPULATE if will_read_all else 0)
            self._mapped = mmap.mmap(self.descriptor, self.size, flags=flags, prot=mmap.PROT_READ)
        whole = pa.foreign_buffer(pa.py_buffer(self._mapped).address, self.size, base=self)
        return pa.ipc.open_stream(whole).read_next_batch()

    def when_released(self, tell: Callable[..., object], *arguments: Any) -> None:
        """Have a function called, on any thread, when nobody refers to this memory any more."""
        weakref.finalize(self, tell, *arguments).atexit = False

    def give_away(self) -> None:
        """Note that somebody has it who does not say when it is released: nothing is written there again."""
        if self._block is not None:
            self._block.is_given_away = True


class SharedMemoryPool:
    """Memory of this process, to copy batches into. Thread-safe.

    Args:
        max_bytes: as much is kept at most, of what is used and what is not; what is used may be more.
        clock: for how long something was not used.
    """

    def __init__(self, *, max_bytes: int, clock: Clock) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._blocks: weakref.WeakSet[_Block] = weakref.WeakSet()
        self._free: deque[_Block] = deque()
        """The one that was used last is the last one."""
        self._released: deque[_Block] = deque()
        """Those to look at: they come at any time and on any thread, maybe one that holds the lock."""

    def copy(self, batch: pa.RecordBatch) -> SharedMemory | None:
        """Copy a batch to where other processes can map it; None if that is not possible, or not worthwhile."""
        if batch.nbytes < _WORTHWHILE_BYTES or not SharedMemory.is_supported():
            self.trim()
            return None
        try:
            return self._copied(batch)
        except (OSError, MemoryError, pa.ArrowException) as error:
            _log.warning("a page cannot be put where tasks could map it, so its bytes are sent: %r", error)
            return None

    def _copied(self, batch: pa.RecordBatch) -> SharedMemory | None:
        size = pa.ipc.get_record_batch_size(batch) + batch.schema.serialize().size + _STREAM_BYTES
        block = self._take(size)
        if block is None:
            return None
        with pa.FixedSizeBufferWriter(pa.py_buffer(block.mapped)) as sink:
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            memory = SharedMemory(block.descriptor, sink.tell(), block)
        memory.when_released(_give_back, weakref.ref(self), block)
        return memory

    def trim(self) -> None:
        """Give memory back to the system that was not used for a minute."""
        if not self._free and not self._released:
            return
        with self._lock:
            self._collect()
            while self._free and self._clock.monotonic() - self._free[0].used_at > _IDLE_SECONDS:
                self._free.popleft()

    def _take(self, size: int) -> "_Block | None":
        """Find memory for so much, or make it. None if there is as much as may be."""
        with self._lock:
            self._collect()
            fitting = [block for block in self._free if block.size >= size]
            if fitting:
                block = min(fitting, key=lambda each: each.size)
                self._free.remove(block)
                return block
            size = -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
            while self._free and (self._has_too_much(size) or not SharedMemory.has_room()):
                self._free.popleft()
            if not SharedMemory.has_room():
                return None
            block = _Block(size)
            self._blocks.add(block)
            return block

    def _collect(self) -> None:
        """Take back what was released."""
        now = self._clock.monotonic()
        while self._released:
            block = self._released.popleft()
            block.used_at = now
            if not block.is_given_away and not self._has_too_much(0):
                self._free.append(block)

    def _has_too_much(self, more: int) -> bool:
        return sum(block.size for block in self._blocks) + more > self._max_bytes


class _Block:
    """Memory with a descriptor, mapped for good. Mutable. Owned by who refers to it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.is_given_away = False
        self.used_at = 0.0
        self.descriptor = os.memfd_create("kinesis-page", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(self.descriptor, 0, size)  # or an error: a write to what cannot be had kills
            self.mapped = mmap.mmap(self.descriptor, size)
        except BaseException:
            os.close(self.descriptor)
            raise
        # Not at the exit, when threads may still use it.
        weakref.finalize(self, os.close, self.descriptor).atexit = False
        _living.add(self)


def _give_back(owner: "weakref.ref[SharedMemoryPool]", block: _Block) -> None:
    pool = owner()
    if pool is not None:
        pool._released.append(block)  # noqa: SLF001 - it is the pool's own doing


_living: "weakref.WeakSet[SharedMemory | _Block]" = weakref.WeakSet()
"""All that has a descriptor, in this process."""
