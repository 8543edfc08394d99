"""Dead letters on any file system that Hadoop knows (HDFS, S3, ABFS, GCS), through the JVM of PySpark.

Every write makes one new file of JSON lines: it is filled under a temporary name, forced to disk where the
file system can do that (object stores are durable once closed), and renamed. So a file that has its name is
complete, whatever crashed, and nothing needs appending, which object stores cannot do.
"""

import os
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, cast

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.dead_letter import DeadLetter
from kinesis_spout.dead_letters.stored_form import (
    decoded,
    decoded_mark,
    encoded,
    encoded_mark,
    mark_of,
    without_redriven,
)
from kinesis_spout.errors import DeadLetterError

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""How much passes between Python and the JVM in one call."""

_LETTERS: Final = "dead-letters"
_MARKS: Final = "redriven"


class HadoopSink:
    """A Hadoop directory of ``dead-letters-*.jsonl`` and ``redriven-*.jsonl`` files. Mutable: may be closed.

    Uses the Hadoop settings of the running SparkContext (``spark.hadoop.*``: credentials, endpoints), or the
    defaults if none runs; starts PySpark's JVM if need be.

    Raises:
        DeadLetterError: when the URL's file system cannot be opened.
    """

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self._url = url
        self._clock = clock or SystemClock()
        # The JVM keeps this environment, and so do the Python processes of any Spark session in it later.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        SparkContext._ensure_initialized()  # noqa: SLF001 - PySpark has no public way to its JVM
        self._jvm = cast("Any", SparkContext._jvm)  # noqa: SLF001
        with self._translated("open"):
            self._directory = self._jvm.org.apache.hadoop.fs.Path(url)
            # An instance of our own: closing the cached one would close it for the whole JVM.
            self._file_system = self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(
                self._directory.toUri(), self._settings()
            )
        self._closed = False

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Make the letters durable, in one new file, before returning; see the port."""
        if letters:
            self._store(_LETTERS, (encoded(letter) for letter in letters))

    def read(self) -> Iterable[DeadLetter]:
        """Give back what was not redriven. A bad line is an error that names ``file:line``; see the port."""
        return without_redriven(
            (decoded(place, line) for place, line in self._lines(_LETTERS)),
            [decoded_mark(place, line) for place, line in self._lines(_MARKS)],
        )

    def mark_redriven(self, letters: Sequence[DeadLetter]) -> None:
        """Leave the letters out of ``read`` from now on, durably.

        Raises:
            DeadLetterError: none or all of them are marked.
        """
        if letters:
            self._store(_MARKS, (encoded_mark(mark_of(letter)) for letter in letters))

    def close(self) -> None:
        """Close the file system. May be called twice."""
        if not self._closed:
            self._closed = True
            with self._translated("close"):
                self._file_system.close()

    def _settings(self) -> Any:
        context = SparkContext._active_spark_context  # noqa: SLF001
        if context is None:
            return self._jvm.org.apache.hadoop.conf.Configuration()
        return context._jsc.hadoopConfiguration()  # noqa: SLF001

    def _store(self, kind: str, lines: Iterable[bytes]) -> None:
        made_at = datetime.fromtimestamp(self._clock.time(), UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        # Drivers on several hosts may share the directory; times and process ids may be equal there.
        name = f"{kind}-{made_at}-{os.getpid()}-{uuid.uuid4().hex}.jsonl"
        with self._translated("write to"):
            temporary = self._path(f"_writing-{name}")
            output = self._file_system.create(temporary, False)  # makes the directories; never overwrites
            try:
                for chunk in _chunks(lines):
                    output.write(chunk)
                if output.hasCapability("hsync"):
                    output.hsync()
            finally:
                output.close()
            if not self._file_system.rename(temporary, self._path(name)):
                raise DeadLetterError(
                    f"expected to rename _writing-{name} to {name} in {self._url!r}, got a refusal; "
                    "check the directory's permissions"
                )

    def _lines(self, kind: str) -> Iterator[tuple[str, bytes]]:
        with self._translated("list"):
            if not self._file_system.exists(self._directory):
                return
            names = [status.getPath().getName() for status in self._file_system.listStatus(self._directory)]
        for name in sorted(names):
            if name.startswith(f"{kind}-") and name.endswith(".jsonl"):
                yield from self._lines_of(name)

    def _lines_of(self, name: str) -> Iterator[tuple[str, bytes]]:
        place = f"{self._url.rstrip('/')}/{name}"
        number, rest = 0, b""
        with self._translated("read"):
            stream = self._file_system.open(self._path(name))
        try:
            while chunk := self._next_chunk(stream):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    number += 1
                    yield f"{place}:{number}", line
        finally:
            with self._translated("read"):
                stream.close()
        if rest:
            raise DeadLetterError(
                f"{place}:{number + 1}: expected a complete line, got one without an end; files are renamed only "
                "when complete, so something else wrote to this one"
            )

    def _next_chunk(self, stream: Any) -> bytes:
        with self._translated("read"):
            return bytes(stream.readNBytes(CHUNK_BYTES))

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._directory, name)

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        try:
            yield
        except Py4JError as error:
            # A Py4JJavaError's own text is a Java stack trace; the exception's is one line.
            said = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
            raise DeadLetterError(f"expected to {verb} {self._url!r} through Hadoop, got {said}") from error


def _chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    chunk = bytearray()
    for line in lines:
        chunk += line + b"\n"
        if len(chunk) >= CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)
