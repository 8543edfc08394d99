"""Dead letters on a file system that PyArrow opens: no Spark, no settings of Hadoop.

Each write makes one new file, which gets its name only when it is complete: nothing is appended, which object
stores cannot do. The names sort by the time of the write.
"""

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import Any, Final, cast

from kinesis_spout.dead_letters.stored_letters import LinesSink, made_at
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import DeadLetterError
from kinesis_spout.model.extras import missing_extra

try:
    from pyarrow import ArrowException, fs
except ImportError as missing:
    raise missing_extra("dead letters on s3://, hdfs:// or gs://", "arrow", ["pyarrow"]) from missing

__all__ = ["CHUNK_BYTES", "RemoteFilesSink", "fs"]

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""The part of a file that is read at a time."""


class RemoteFilesSink(LinesSink):
    """A directory by its URL, which is opened when it is first needed. Mutable: keeps the connection."""

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self.address = url.rstrip("/")
        """The directory, for messages."""
        self._clock = clock or SystemClock()
        self._opened: tuple[fs.FileSystem, str] | None = None

    def check_writable(self) -> None:
        """Make an empty file and remove it. The directory stays."""
        with self._translated("write to"):
            file_system, _ = self._connected()
            file_system.delete_file(self._filled(f"_probe-{uuid.uuid4().hex}", b""))

    def append(self, kind: str, lines: Iterable[bytes]) -> None:
        """Make a new file of lines; if it raises, all of them or none are stored."""
        # Drivers on several hosts may share the directory; times and process ids may be equal there.
        name = f"{kind}-{made_at(self._clock)}-{os.getpid()}-{uuid.uuid4().hex}.jsonl"
        data = b"".join(line + b"\n" for line in lines)
        with self._translated("write to"):
            self._create(name, data)

    def lines(self, kind: str) -> Iterator[tuple[str, bytes]]:
        with self._translated("list"):
            names = sorted(self._names())
        for name in names:
            if name.startswith(f"{kind}-") and name.endswith(".jsonl"):
                with self._translated("read"):
                    yield from self._lines_of(name)

    def close(self) -> None:
        self._opened = None

    def _create(self, name: str, data: bytes) -> None:
        """Make a file that is whole, and durable, once it has its name."""
        file_system, directory = self._connected()
        file_system.move(self._filled(f"_writing-{name}", data), f"{directory}/{name}")

    def _filled(self, name: str, data: bytes) -> str:
        """Fill a file, close it, which makes it durable, and give its path."""
        file_system, directory = self._connected()
        file_system.create_dir(directory, recursive=True)
        path = f"{directory}/{name}"
        with file_system.open_output_stream(path) as stream:
            stream.write(data)
        return path

    def _names(self) -> list[str]:
        """Name all that the directory holds, in any order; nothing if it does not exist yet."""
        file_system, directory = self._connected()
        found = file_system.get_file_info(fs.FileSelector(directory, allow_not_found=True))
        return [info.base_name for info in found if info.type is fs.FileType.File]

    def _lines_of(self, name: str) -> Iterator[tuple[str, bytes]]:
        file_system, directory = self._connected()
        stream = cast("Any", file_system.open_input_stream(f"{directory}/{name}"))
        with BufferedReader(stream, CHUNK_BYTES) as lines:
            for number, line in enumerate(lines, start=1):
                where = f"{self.address}/{name}:{number}"
                if not line.endswith(b"\n"):
                    raise DeadLetterError(
                        f"{where}: expected a complete line, got one without an end; files get their names only "
                        "when complete, so something else wrote to this one"
                    )
                yield where, line[:-1]

    def _connected(self) -> tuple[fs.FileSystem, str]:
        """Open the file system, and give it with the directory there."""
        if self._opened is None:
            file_system, directory = fs.FileSystem.from_uri(self.address)
            self._opened = file_system, directory.rstrip("/")
        return self._opened

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ArrowException) as error:
            self._opened = None
            said = str(error).partition("\n")[0]
            raise DeadLetterError(
                f"expected to {verb} {self.address!r}, got {said}; check the address, the permissions there, and "
                "for hdfs:// that Hadoop's libhdfs can be loaded (HADOOP_HOME, CLASSPATH)"
            ) from error
