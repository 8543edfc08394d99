"""Time, as a port: everything that waits takes a clock, so that tests control the time."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """All that we ask of time."""

    def time(self) -> float:
        """Seconds since the epoch; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never jumps. For deadlines and pacing."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after ``seconds``, or at once when that is not positive."""
        ...

    async def pause(self, seconds: float) -> None:
        """Do the same in a coroutine, whose thread serves others meanwhile."""
        ...


class SystemClock:
    """The machine's clock."""

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some moment; never jumps."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        if seconds > 0:
            time.sleep(seconds)

    async def pause(self, seconds: float) -> None:
        """Suspend the calling coroutine."""
        if seconds > 0:
            import asyncio  # noqa: PLC0415 - processes that pause no coroutine do without

            await asyncio.sleep(seconds)


def moment(seconds: float) -> str:
    """Write seconds since the epoch as ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
