"""The folder of a spool, with a folder in it for each process that uses it.

    stream.json                                   the stream of all its records
    20261122T235959.123456Z-4711-9f3c.spool/      of one process, which holds its lock for as long as it lives
        000001.jsonl                              its records; see ``spool_file``
    20261122T235959.123456Z-4711-9f3c-000001.damaged    a file with damaged records; the others were put

The process that holds the lock may open, change and remove the files. So those of a dead process go to exactly
one of those that ask for them, and the names sort by the time their owners began.

Everything here raises ``SpoolError`` if the folder or a file cannot be read or written.
"""

import contextlib
import fcntl
import json
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self
from weakref import WeakSet

from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.directories import make_durably, sync_directory
from kinesis_spout.model.errors import InvalidConfig, SpoolDamaged, SpoolError
from kinesis_spout.producer.spool.spool_file import SUFFIX, UNFINISHED, translated
from kinesis_spout.settings.grammar.stream_names import is_same

VERSION: Final = 2
DAMAGED: Final = ".damaged"
_OWNED: Final = ".spool"
_MARK: Final = "stream.json"
_MOUNTS: Final = Path("/proc/self/mountinfo")
_NETWORK: Final = frozenset(
    {"afs", "ceph", "cifs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
    | {"fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "fuse.mount-s3", "fuse.rclone"}
)


class FolderLock:
    """The exclusive lock of a folder, until ``release`` or the end of this process. Mutable. Made by ``taken``.

    flock(2), because its locks exclude each other within one process as well, and are not lost when another
    part of the process opens and closes the same folder. A fork inherits them; so the child closes its copies,
    which leaves the parent's lock alone, and no child holds a spool that its parent can no longer use.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        _held.add(self)

    @classmethod
    def taken(cls, path: Path) -> Self | None:
        """Take the lock; None if another process or thread has it, or the folder is gone."""
        with translated(path):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
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

    def release(self) -> None:
        """Release it. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        _held.discard(self)
        if descriptor is not None:
            os.close(descriptor)

    def remove(self) -> None:
        """Remove the folder, unless something else is in it, and release it."""
        with contextlib.suppress(OSError):
            self.path.rmdir()
        self.release()


_held: WeakSet[FolderLock] = WeakSet()


def _is_named(path: Path, descriptor: int) -> bool:
    """Return whether the open folder still has this name: an owner that ended meanwhile has removed it."""
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))


def _leave_to_the_parent() -> None:
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_leave_to_the_parent)


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
                "do not hold there; name a folder on a disk of this machine"
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
            found = json.loads(text)
            version, stream = found["version"], str(found["stream"])
        except (ValueError, KeyError, TypeError) as error:
            raise SpoolDamaged(
                f'{mark}: expected {{"version": {VERSION}, "stream": NAME}}, got {text[:80]!r}; write it anew '
                "with the stream's name: the records are in other files"
            ) from error
        if version != VERSION:
            raise SpoolDamaged(
                f"{mark}: expected version {VERSION}, got {version!r}: another release wrote it; empty the "
                "spool with a producer of that release, or name another folder"
            )
        return stream

    def make(self) -> FolderLock:
        """Make a folder for this process."""
        made_at = datetime.fromtimestamp(self._clock.time(), UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        while True:
            path = self.path / f"{made_at}-{os.getpid()}-{secrets.token_hex(4)}{_OWNED}"
            with translated(path):
                path.mkdir(mode=0o700)
                sync_directory(self.path)
            if (lock := FolderLock.taken(path)) is not None:  # else another took it for one that was left
                return lock

    def owned(self) -> list[Path]:
        """Return the folders of all processes, in the order in which they began."""
        with translated(self.path / _MARK):
            return sorted(path for path in self.path.glob(f"*{_OWNED}") if path.is_dir())

    def damaged(self) -> list[Path]:
        """Return the files that were put aside."""
        with translated(self.path / _MARK):
            return sorted(self.path.glob(f"*{DAMAGED}"))

    def take_left_over(self) -> tuple[FolderLock, list[Path]] | None:
        """Take the folder of an ended process, with its files; None without one.

        Raises:
            SpoolError: a folder cannot be taken now; there is no other.
        """
        failure: SpoolError | None = None
        for path in self.owned():
            try:
                found = _taken_with_files(path)
            except SpoolError as error:
                failure = failure or error
                continue
            if found is not None:
                return found
        if failure is not None:
            raise failure
        for mark in self.path.glob(f"{_MARK}.*"):  # the folder has its mark: nobody needs to make it any more
            with translated(mark):
                mark.unlink(missing_ok=True)
        return None

    def _mark(self, stream: str) -> None:
        mark = self.path / _MARK
        whole = self.path / f"{_MARK}.{secrets.token_hex(4)}"
        with translated(mark):
            descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(descriptor, "w") as file:
                    json.dump({"version": VERSION, "stream": stream}, file)
                    file.flush()
                    os.fsync(descriptor)
                # Another process was first, and perhaps has removed this as a rest.
                with contextlib.suppress(FileExistsError, FileNotFoundError):
                    os.link(whole, mark)  # a rename would replace it
            finally:
                whole.unlink(missing_ok=True)
            sync_directory(self.path)


def files_in(owned: Path) -> list[Path]:
    """Return a process's files of records, in their order."""
    with translated(owned):
        return sorted(owned.glob(f"*{SUFFIX}"))


def _taken_with_files(path: Path) -> tuple[FolderLock, list[Path]] | None:
    """Take the folder of an ended process; None if it lives. A folder without records is removed."""
    if (lock := FolderLock.taken(path)) is None:
        return None
    try:
        with translated(path):
            for rest in path.glob(f"*{UNFINISHED}"):
                rest.unlink()
        files = files_in(path)
    except BaseException:
        lock.release()
        raise
    if files:
        return lock, files
    lock.remove()
    return None


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
