"""What all shards that a process reads may give together.

A page's size is known only when it is here, so it is paid for afterwards. All pages of a process are paid for one
after the other, at the budget's rate, in the order in which they came; a shard is read again when its own last
page is paid for. So

* while one shard has records, it has the whole budget; while many have, each has the same number of pages;
* an empty page costs nothing: a shard at its tip is polled, whatever the others read;
* a page larger than the budget of a second is read like any other, and the pause after it is longer;
* in any span of time no more is read than the budget of that span and one page (on executors: one slice) of each
  shard.
"""

import threading
from math import inf


class ByteBudget:
    """Bytes a second, over all shards of one process. Mutable, thread-safe; times are the clock's monotonic ones.

    Args:
        bytes_per_second: of the whole application; None: no limit.
    """

    def __init__(self, bytes_per_second: float | None = None) -> None:
        self._whole = inf if bytes_per_second is None else bytes_per_second
        self._rate = self._whole
        self._paid_at = -inf
        """When everything is paid for that was read so far."""
        self._lock = threading.Lock()

    @property
    def bytes_per_second(self) -> float:
        """The rate of this process; infinite without a limit."""
        return self._rate

    def take_part(self, part: float) -> None:
        """Use only so much of the application's budget from now on: more than 0, at most 1."""
        self._rate = self._whole * part

    def pay(self, size_bytes: int, since: float) -> float:
        """Charge what was read since a time, and say when it is paid for.

        Args:
            size_bytes: of the page, or of several that were read in one go.
            since: when the read began.
        """
        if size_bytes == 0 or self._rate == inf:
            return since
        with self._lock:
            self._paid_at = max(self._paid_at, since) + size_bytes / self._rate
            return self._paid_at
