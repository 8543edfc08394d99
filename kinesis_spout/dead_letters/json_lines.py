"""Dead letters as lines of JSON in a local directory; those reported as written survive any crash.

Letters hold records, so the directory and the files are made for this user alone (0700, 0600); a directory that
exists keeps its permissions.

Each process appends to its own files, so that nothing needs a lock. An append is one write and one fsync; an
fsync of the directory above makes the name of a new file or directory durable.

A crash during an append can leave an incomplete last line. That line was never reported as written, so a
reader leaves it out, with a warning. After a failed append (a full disk) the file is truncated to its former
length; if that fails too, it is given up and the next append starts a new file. So nothing is ever appended
to an incomplete line, and only last lines are incomplete.
"""

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from kinesis_spout.dead_letters.stored_letters import LinesSink, made_at
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.directories import check_directory, make_durably, sync_directory
from kinesis_spout.model.errors import DeadLetterError

MAX_FILE_BYTES: Final = 64 * 1024 * 1024

_log = logging.getLogger(__name__)


class JsonLinesSink(LinesSink):
    """A local directory, made at the first write. Processes of several applications may share it.

    Mutable: holds a file of each kind that was appended to.
    """

    def __init__(
        self, directory: str | Path, *, max_file_bytes: int = MAX_FILE_BYTES, clock: Clock | None = None
    ) -> None:
        self._directory = Path(directory)
        self._max_file_bytes = max_file_bytes
        self._clock = clock or SystemClock()
        self._files: dict[str, _LineFiles] = {}

    def check_writable(self) -> None:
        """Make an empty file and remove it: in the directory, or in the nearest existing one above."""
        try:
            check_directory(self._directory)
        except OSError as error:
            raise DeadLetterError(
                f"expected to be able to write below {str(self._directory)!r}, got {error}; name a directory that "
                "this user may write to"
            ) from error

    def append(self, kind: str, lines: Iterable[bytes]) -> None:
        self._of(kind).append(lines)

    def lines(self, kind: str) -> Iterator[tuple[str, bytes]]:
        return self._of(kind).read()

    def close(self) -> None:
        for files in self._files.values():
            files.close()

    def _of(self, kind: str) -> "_LineFiles":
        return self._files.setdefault(
            kind,
            _LineFiles(
                directory=self._directory,
                kind=kind,
                max_file_bytes=self._max_file_bytes,
                clock=self._clock,
            ),
        )


class _LineFiles:
    """Files named ``<kind>-<UTC time>-<pid>-<n>.jsonl`` in one directory. Mutable: holds the file in use."""

    def __init__(self, *, directory: Path, kind: str, max_file_bytes: int, clock: Clock) -> None:
        self._directory = directory
        self._kind = kind
        self._max_file_bytes = max_file_bytes
        self._clock = clock
        self._descriptor: int | None = None
        self._size_bytes = 0
        self._is_whole = True
        """The file is known to end with a line that was reported as written."""

    def append(self, lines: Iterable[bytes]) -> None:
        """Make the lines (without their ends) durable before returning.

        Raises:
            DeadLetterError: the first lines may be stored, the last of those incompletely.
        """
        data = b"".join(line + b"\n" for line in lines)
        self._is_whole = False
        try:
            if self._descriptor is None:
                self._descriptor = self._new_file()
                self._size_bytes = 0
            self._write(self._descriptor, data)
            os.fsync(self._descriptor)
            self._is_whole = True
        except OSError as error:
            if not self._is_whole:
                self.close()
            raise DeadLetterError(
                f"expected to write {len(data)} bytes below {str(self._directory)!r}, got {error}; "
                "check the directory's permissions and free space"
            ) from error
        self._size_bytes += len(data)
        if self._size_bytes >= self._max_file_bytes:
            self.close()

    def read(self) -> Iterator[tuple[str, bytes]]:
        """Yield every complete line with its place, ``file:line``; the oldest file first."""
        for path in sorted(self._directory.glob(f"{self._kind}-*.jsonl")):
            try:
                with path.open("rb") as file:
                    for number, line in enumerate(file, start=1):
                        if line.endswith(b"\n"):
                            yield f"{path}:{number}", line[:-1]
                        else:
                            _log.warning(
                                "%s:%d: an incomplete last line of %d bytes is left out: a crash or a full disk "
                                "cut its write short; it was never reported as written, so its record came again",
                                path,
                                number,
                                len(line),
                            )
            except OSError as error:
                raise DeadLetterError(f"{path}: expected a readable file, got {error}") from error

    def close(self) -> None:
        """Close the file in use; a later append starts another."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _write(self, descriptor: int, data: bytes) -> None:
        try:
            _write_all(descriptor, data)
        except OSError:
            os.ftruncate(descriptor, self._size_bytes)
            self._is_whole = True
            raise

    def _new_file(self) -> int:
        make_durably(self._directory, 0o700)
        begins, number = f"{self._kind}-{made_at(self._clock)}-{os.getpid()}", 0
        while True:
            path = self._directory / f"{begins}-{number:04d}.jsonl"
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                number += 1
                continue
            try:
                sync_directory(self._directory)
            except OSError:
                os.close(descriptor)
                raise
            return descriptor


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:  # one write, unless the system takes only a part
        rest = rest[os.write(descriptor, rest) :]
