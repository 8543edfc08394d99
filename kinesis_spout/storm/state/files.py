"""The files of keyed state: Arrow IPC, written once and never changed, at any address that ``pyarrow.fs`` opens.

A file has the columns ``key`` and ``value``, both pickled; a value of null says that the key was deleted. Its
schema's metadata has the format's version and after which states it applies. Its name has a checksum of its
bytes, so that a damaged file is known before it is parsed. It is durable when ``write`` returns; half a file that
a crash leaves is named by no manifest, so it needs no other name while it is written.
"""

import json
import os
import pickle
import secrets
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs, ipc

from kinesis_spout.model.directories import make_durably, sync_directory
from kinesis_spout.model.errors import InvalidConfig, StateUnavailable, StateUnreadable
from kinesis_spout.storm.state.key_values import PICKLE_PROTOCOL
from kinesis_spout.storm.state.manifest import PartitionPlace, StateFile, StateManifest

FORMAT: Final = 1
_METADATA: Final = b"kinesis-spout-state"
_ROWS: Final = 64 * 1024
"""The number of rows in each record batch of a file."""
_KEY_BYTES: Final = 24
_OPTIONS: Final = {"compression": "lz4"}
_WITHOUT_FOLDERS: Final = frozenset({"s3", "gcs", "abfs"})
"""Stores of objects: a folder there is an object, which is not needed. Each level costs a request."""
_COLUMNS: Final = [pa.field("key", pa.large_binary(), nullable=False), pa.field("value", pa.large_binary())]
_NOT_THERE: Final = "the folder of the keyed state is not there: is it mounted on this machine?"

Key = Any
Rows = Mapping[Key, bytes | None]
"""Keys, and their values as they are pickled; None says that a key is deleted."""


def payload_bytes_of(rows: Rows) -> int:
    """About how large rows are, for comparison: what their values weigh, and a little for each key."""
    return sum(_KEY_BYTES + len(value or b"") for value in rows.values())


class StateFiles:
    """The files at one address. Holds a connection, if the address needs one; make one in each process."""

    def __init__(self, address: str) -> None:
        """InvalidConfig: no absolute path, no address that ``pyarrow.fs`` opens, or one with a password."""
        self.address = address
        self.filesystem, self.root = _opened(address)
        self._was_there = False
        """True if the folder was seen. It is made once: made again, it would hide that a disk is away."""

    @property
    def _is_local(self) -> bool:
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def write(self, place: PartitionPlace, number: int, rows: Rows, after: Sequence[str] = ()) -> str:
        """Store rows, durably, and give the file's name, which no other file has. StateUnavailable: retriable.

        ``number`` comes first in the name, for people; ``after`` names the states to which the file applies.
        """
        content = _encoded(rows, after)
        name = f"{number}-{zlib.crc32(content):08x}{secrets.token_hex(3)}"
        path = place.path(name)
        try:
            if self._is_local:
                self._write_locally(Path(path), content)
            else:
                if self.filesystem.type_name not in _WITHOUT_FOLDERS:
                    self.filesystem.create_dir(f"{self.root}/{place.folder}", recursive=True)
                with self.filesystem.open_output_stream(f"{self.root}/{path}") as stream:
                    stream.write(content)
        except OSError as error:
            with suppress(OSError):  # half a file, of which there can be many on a full disk
                self.delete(path)
            raise StateUnavailable(
                f"the keyed state cannot be written at {self.address}, in {place.folder}: {error}"
            ) from error
        self._was_there = True
        return name

    def read(self, place: PartitionPlace, name: str) -> tuple[StateFile, Rows]:
        """Read a file, and its rows. StateUnreadable: it is gone or damaged; StateUnavailable: retriable."""
        path = place.path(name)
        where = f"{self.address}: {path}"
        try:
            content = self._read_locally(path) if self._is_local else self._read_elsewhere(path)
        except FileNotFoundError as error:
            raise StateUnreadable(f"{where}: {_unreadable('no such file')}") from error
        except OSError as error:
            raise StateUnavailable(f"{where}: the file of keyed state cannot be read: {error}") from error
        self._was_there = True
        if f"{zlib.crc32(content):08x}" != name.partition("-")[2][:8]:
            raise StateUnreadable(f"{where}: {_unreadable('other bytes than its name tells (a checksum)')}")
        return _decoded(name, content, where)

    def _read_locally(self, path: str) -> bytes:
        """Read a file of the folder that is there now. FileNotFoundError: that has no such file.

        The folder can vanish and come back at any time, as when a disk is mounted again. Found through a
        descriptor of the folder, a file that is not there is not there in any case.
        """
        try:
            folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError as error:
            raise StateUnavailable(f"{self.address}: {_NOT_THERE}") from error
        try:
            with open(path, "rb", opener=partial(os.open, dir_fd=folder)) as file:
                return file.read()
        finally:
            os.close(folder)

    def _read_elsewhere(self, path: str) -> bytes:
        with self.filesystem.open_input_stream(f"{self.root}/{path}", compression=None) as stream:
            return bytes(stream.read())

    def _write_locally(self, path: Path, content: bytes) -> None:
        root = Path(self.root)
        if not self._was_there:
            make_durably(root, 0o700)  # what is in it is unpickled
        try:
            for folder in reversed(path.parents[:-1]):
                if not (root / folder).is_dir():
                    (root / folder).mkdir(exist_ok=True)
                    sync_directory((root / folder).parent)
            with (root / path).open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            for each in {root / path.parent, root}:
                sync_directory(each)
        except FileNotFoundError as error:
            raise OSError(_NOT_THERE) from error

    def size_bytes(self, paths: Sequence[str]) -> int:
        """Say how large files are together; missing ones count nothing. StateUnavailable: retriable."""
        try:
            found = self.filesystem.get_file_info([f"{self.root}/{path}" for path in paths])
        except OSError as error:
            raise StateUnavailable(f"cannot look at keyed state in {self.address}: {error}") from error
        return sum(info.size or 0 for info in found)

    def modified(self, folder: str) -> Mapping[str, float]:
        """The files below a folder, with the time of their last change in seconds since the epoch."""
        selector = fs.FileSelector(f"{self.root}/{folder}", recursive=True, allow_not_found=True)
        return {
            info.path[len(self.root) + 1 :]: (info.mtime_ns or 0) / 1e9
            for info in self.filesystem.get_file_info(selector)
            if info.is_file
        }

    def delete(self, path: str) -> None:
        self.filesystem.delete_file(f"{self.root}/{path}")


def merged_rows(files: StateFiles, manifest: StateManifest, component: str, index: int) -> dict[Key, bytes]:
    """One task's part: its keys, with their pickled values. Raises as ``read``."""
    place = manifest.place(component, index)
    merged: dict[Key, bytes] = {}
    for name in manifest.files(component, index):
        for key, value in files.read(place, name)[1].items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = value
    return merged


def _opened(address: str) -> tuple[Any, str]:
    if address.startswith(("s3a://", "s3n://")):  # Hadoop's names of S3
        address = "s3" + address[3:]
    try:
        has_password = urlsplit(address).password is not None
    except ValueError:  # what it is, is said below
        has_password = False
    if has_password:
        raise InvalidConfig(
            "expected the address of keyed state to be without credentials, got one with a password before the @; "
            "give them to driver and executors by environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or by "
            "the role of the machines"
        )
    try:
        filesystem, root = fs.FileSystem.from_uri(address)
    except (ValueError, OSError, ImportError) as error:
        raise InvalidConfig(
            "expected the address of keyed state to be an absolute path that every machine has, or an address "
            f"such as s3://bucket/folder, gs://bucket/folder or hdfs://host:port/folder, got {address!r}: {error}"
        ) from error
    return filesystem, root.rstrip("/")


def _encoded(rows: Rows, after: Sequence[str]) -> bytes:
    keys = [pickle.dumps(key, PICKLE_PROTOCOL) for key in rows]
    values = list(rows.values())
    said = json.dumps({"format": FORMAT, "after": list(after), "payload_bytes": payload_bytes_of(rows)})
    schema = pa.schema(_COLUMNS, metadata={_METADATA: said.encode()})
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, schema, options=ipc.IpcWriteOptions(**_OPTIONS)) as writer:
        for first in range(0, len(keys), _ROWS):
            part = slice(first, first + _ROWS)
            columns = [pa.array(each[part], pa.large_binary()) for each in (keys, values)]
            writer.write_batch(pa.record_batch(columns, schema=schema))
    return bytes(memoryview(sink.getvalue()))


def _decoded(name: str, content: bytes, where: str) -> tuple[StateFile, Rows]:
    keys: list[Key] = []
    values: list[bytes | None] = []
    try:
        reader = ipc.open_file(pa.py_buffer(content))
        said = json.loads(reader.schema.metadata[_METADATA])
        if said["format"] != FORMAT:
            raise StateUnreadable(
                f"{where}: expected a file of keyed state of format {FORMAT}, got format {said['format']!r}: if a "
                "newer kinesis-spout wrote it, upgrade this one"
            )
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            # Many times as fast as to_pylist.
            pickled, stored = (column.to_numpy(zero_copy_only=False).tolist() for column in batch.columns)
            keys += map(pickle.loads, pickled)
            values += stored
        rows = dict(zip(keys, values, strict=True))
        after, payload_bytes = tuple(said["after"]), said["payload_bytes"]
    except (pa.ArrowException, LookupError, TypeError, ValueError) as error:
        raise StateUnreadable(f"{where}: {_unreadable(repr(error))}") from error
    changes = rows.keys() if after else ()
    return StateFile(name=name, payload_bytes=payload_bytes, keys=changes, after=after), rows


def _unreadable(found: str) -> str:
    return (
        f"expected a file of keyed state, found {found}. Restore it from a backup; or begin again from a position "
        "of your choice with `kinesis-spout checkpoints reset --to PLACE`, which removes the state"
    )
