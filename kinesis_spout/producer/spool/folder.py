"""The folder of a spool, with one file for each process that uses it.

    stream.json                            the stream of all its records
    20261122T235959.123456Z-4711-9f3c.spool       a SQLite database, with its log and its index
    20261122T235959.123456Z-4711-9f3c.spool.lock  locked by the process that owns the file, for as long as it
    lives 20261122T235959.123456Z-4711-9f3c.spool.saved  moved aside by `kinesis-spout spool save` or `spool
    put`

The process that holds the lock may open, change and remove the file. So a file of a dead process goes to
exactly one of those that ask for it, and the names sort by the time their owners began.

Everything here raises ``SpoolError`` if the folder or a file cannot be read or written.
"""

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, Self
from weakref import WeakSet

from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.directories import make_durably, sync_directory
from kinesis_spout.model.errors import InvalidConfig, SpoolDamaged
from kinesis_spout.producer.spool.spool_file import SpoolFile, translated
from kinesis_spout.settings.grammar.stream_names import is_same

SUFFIX: Final = ".spool"
_MARK: Final = "stream.json"
_SIDE_FILES: Final = ("-wal", "-shm", "-journal")
_MOUNTS: Final = Path("/proc/self/mountinfo")
_NETWORK: Final = frozenset(
    {"afs", "ceph", "cifs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
    | {"fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "fuse.mount-s3", "fuse.rclone"}
)


class FileLock:
    """The exclusive lock of a file, until ``release`` or the end of this process. Mutable. Made by ``taken``.

    flock(2), because its locks exclude each other within one process as well, and are not lost when another
    part of the process opens and closes the same file. A fork inherits them; so the child closes its copies,
    which leaves the parent's lock alone, and no child holds a spool that its parent can no longer use.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        _held.add(self)

    @classmethod
    def taken(cls, path: Path) -> Self | None:
        """Take the lock, making the file if needed; None if another process or thread has it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_current = _is_named(path, descriptor)
        except BlockingIOError:
            is_current = False
        except BaseException:
            os.close(descriptor)
            raise
        if not is_current:
            os.close(descriptor)
            return None
        return cls(path, descriptor)

    def release(self, *, remove: bool = False) -> None:
        """Release it; remove the file first if it is no longer needed. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        _held.discard(self)
        if descriptor is None:
            return
        if remove:
            self.path.unlink(missing_ok=True)
        os.close(descriptor)


_held: WeakSet[FileLock] = WeakSet()


def _is_named(path: Path, descriptor: int) -> bool:
    """Whether the open file still has this name: an owner that ended meanwhile has removed it."""
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))


def _leave_to_the_parent() -> None:
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_leave_to_the_parent)


class Claim(NamedTuple):
    """A file that this process owns until it releases the lock."""

    path: Path
    lock: FileLock

    def remove(self) -> None:
        with translated(self.path):
            for each in side_files(self.path):
                each.unlink(missing_ok=True)
            self.lock.release(remove=True)

    def release(self) -> None:
        self.lock.release()


class SpoolFolder:
    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock or SystemClock()

    def open(self, stream: str) -> None:
        """Make the folder if missing, for this user alone; check that it can be this stream's spool.

        Raises:
            InvalidConfig: it is another stream's, or on a network file system.
            SpoolError: it cannot be made.
            SpoolDamaged: its stream cannot be read.
        """
        with translated(self.path / _MARK):
            make_durably(self.path, 0o700)
        if (network := network_file_system(self.path)) is not None:
            raise InvalidConfig(
                f"expected the spool's folder on a local disk, got {str(self.path)!r} on {network}: locks "
                "and shared memory do not hold there; name a folder on a disk of this machine"
            )
        found = self.stream()
        if found is None:
            self._mark(stream)
            found = self.stream()
        if found is None or not is_same(found, stream):
            raise InvalidConfig(
                f"expected the spool of stream {stream!r} in {str(self.path)!r}, got that of {found!r}; name "
                "another folder: each stream has its own"
            )

    def stream(self) -> str | None:
        """Return the stream of the folder; None if it never was a spool."""
        mark = self.path / _MARK
        with translated(mark):
            try:
                text = mark.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
        try:
            return str(json.loads(text)["stream"])
        except (ValueError, KeyError, TypeError) as error:
            raise SpoolDamaged(
                f'{mark}: expected {{"version": 1, "stream": NAME}}, got {text[:80]!r}; write it anew with the '
                "stream's name: the records are in other files"
            ) from error

    def make(self, stream: str) -> Claim:
        made_at = datetime.fromtimestamp(self._clock.time(), UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        path = self.path / f"{made_at}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
        with translated(path):
            lock = FileLock.taken(lock_file(path))
            if lock is None:
                raise FileExistsError(path)
        try:
            SpoolFile.make(path, stream)
            with translated(path):
                sync_directory(self.path)
        except BaseException:
            lock.release(remove=_remove_rests(path))
            raise
        return Claim(path, lock)

    def files(self) -> list[Path]:
        """Return all files of records, in the order in which their owners began."""
        with translated(self.path / _MARK):
            return sorted(self.path.glob(f"*{SUFFIX}"))

    def left_over(self) -> Iterator[Claim]:
        """Claim the files of ended owners, one after the other; what is not kept must be released."""
        for path in self.files():
            if (claim := claimed(path)) is not None:
                yield claim
        self._remove_unfinished()

    def _remove_unfinished(self) -> None:
        """Remove the files of owners that died while they made or removed them: they hold no records."""
        for mark in self.path.glob(f"{_MARK}.*"):  # the folder has its mark: nobody needs to make it any more
            with translated(mark):
                mark.unlink(missing_ok=True)
        for path in self.path.glob(f"*{SUFFIX}.lock"):
            records = path.with_suffix("")
            if records.exists():
                continue
            with translated(path):
                lock = FileLock.taken(path)
                if lock is not None:
                    lock.release(remove=_remove_rests(records))

    def _mark(self, stream: str) -> None:
        mark = self.path / _MARK
        whole = self.path / f"{_MARK}.{secrets.token_hex(4)}"
        with translated(mark):
            descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(descriptor, "w") as file:
                    json.dump({"version": 1, "stream": stream}, file)
                    file.flush()
                    os.fsync(descriptor)
                # Another process was first, and perhaps has removed this as a rest.
                with contextlib.suppress(FileExistsError, FileNotFoundError):
                    os.link(whole, mark)  # a rename would replace it
            finally:
                whole.unlink(missing_ok=True)
            sync_directory(self.path)


def claimed(path: Path) -> Claim | None:
    """Claim a file; None if its owner lives, or it does not exist."""
    with translated(path):
        lock = FileLock.taken(lock_file(path))
    if lock is None:
        return None
    if not path.exists():  # its owner removed it first
        lock.release(remove=True)
        return None
    return Claim(path, lock)


def lock_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def unfinished(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def _remove_rests(path: Path) -> bool:
    """Remove the side files of a missing file of records; False if it exists."""
    if path.exists():
        return False
    for each in (*side_files(unfinished(path)), *side_files(path)[1:]):
        each.unlink(missing_ok=True)
    return True


def side_files(path: Path) -> list[Path]:
    """Return a file and SQLite's side files, in the order in which they are removed.

    The file goes first: without it the others mean nothing, while it would be wrong without its log.
    """
    return [path, *(path.with_name(path.name + suffix) for suffix in _SIDE_FILES)]


def network_file_system(folder: Path, mounts: Path = _MOUNTS) -> str | None:
    """Return the kind of a network file system; None if it is local, or the system does not tell.

    Linux tells: proc(5), ``/proc/[pid]/mountinfo``.
    """
    try:
        lines = mounts.read_text().splitlines()
        device = folder.stat().st_dev
    except OSError:
        return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        fields, _, kind = line.partition(" - ")
        if fields.split()[2] == wanted and (name := kind.split()[0]) in _NETWORK:
            return name
    return None
