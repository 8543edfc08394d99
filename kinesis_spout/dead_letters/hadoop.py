"""Dead letters on any file system that Hadoop knows (HDFS, S3A, ABFS, GCS), through the JVM of PySpark.

A file is filled under a temporary name, forced to disk if the file system can do that (object stores are
durable once closed), and renamed. So nothing is appended, which object stores cannot do.
"""

import os
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

from kinesis_spout.dead_letters.stored_letters import LinesSink, WholeFiles
from kinesis_spout.model.errors import DeadLetterError
from kinesis_spout.model.extras import check_spark

try:
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark import SparkContext
except ImportError:
    check_spark("dead letters at a URL of Hadoop")
    raise

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""How much passes between Python and the JVM in one call."""


class HadoopSink(LinesSink):
    """A Hadoop directory of dead letters.

    Uses the Hadoop settings of the running SparkContext (``spark.hadoop.*``: credentials, endpoints), or the
    defaults if none runs; starts PySpark's JVM if needed.

    Raises:
        DeadLetterError: the URL's file system cannot be opened.
    """

    def __init__(self, url: str) -> None:
        super().__init__(_HadoopDirectory(url))


class _HadoopDirectory(WholeFiles):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        # The JVM keeps this environment, and so do the Python processes of any Spark session in it later.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        SparkContext._ensure_initialized()  # noqa: SLF001 - PySpark has no public way to its JVM
        self._jvm = cast("Any", SparkContext._jvm)  # noqa: SLF001
        with self._translated("open"):
            self._directory = self._jvm.org.apache.hadoop.fs.Path(url)
            # A separate instance: closing the cached one would close it for the whole JVM.
            self._file_system = self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(
                self._directory.toUri(), self._settings()
            )
        self._closed = False

    def check_writable(self) -> None:
        """Make an empty file and remove it, with the directories that were made for it."""
        with self._translated("write to"):
            made = self._missing_directories()
            probe = self._path(f"_probe-{uuid.uuid4().hex}")
            self._file_system.create(probe, False).close()
            self._file_system.delete(probe, False)
            for directory in made:
                if len(self._file_system.listStatus(directory)) == 0:  # else another process uses it by now
                    self._file_system.delete(directory, False)

    def create(self, name: str, lines: Iterable[bytes]) -> None:
        """Fill a file under a temporary name, and rename it."""
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
                    f"expected to rename _writing-{name} to {name} in {self.address!r}, got a refusal; "
                    "check the directory's permissions"
                )

    def names(self) -> list[str]:
        with self._translated("list"):
            if not self._file_system.exists(self._directory):
                return []
            return [status.getPath().getName() for status in self._file_system.listStatus(self._directory)]

    def chunks(self, name: str) -> Iterator[bytes]:
        with self._translated("read"):
            stream = self._file_system.open(self._path(name))
        try:
            while chunk := self._next_chunk(stream):
                yield chunk
        finally:
            with self._translated("read"):
                stream.close()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with self._translated("close"):
                self._file_system.close()

    def _settings(self) -> Any:
        context = SparkContext._active_spark_context  # noqa: SLF001
        if context is None:
            return self._jvm.org.apache.hadoop.conf.Configuration()
        return context._jsc.hadoopConfiguration()  # noqa: SLF001

    def _missing_directories(self) -> list[Any]:
        """Return the directory and those above it that do not exist, the deepest first."""
        missing = []
        directory = self._directory
        while directory is not None and not self._file_system.exists(directory):
            missing.append(directory)
            directory = directory.getParent()
        return missing

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
            raise DeadLetterError(
                f"expected to {verb} {self.address!r} through Hadoop, got {said}"
            ) from error


def _chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    chunk = bytearray()
    for line in lines:
        chunk += line + b"\n"
        if len(chunk) >= CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)
