"""A producer's spool: what it holds, and how to save what damaged files hold."""

import base64
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinesis_spout.model.errors import SpoolError
from kinesis_spout.operations.errors import NotFound, WrongArguments
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.stream_names import is_same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kinesis_spout.producer.spool import Spooled


def list_files(world: World, folder: Path) -> list[dict[str, Any]]:
    from kinesis_spout.producer.spool.salvage import records_in, reports  # noqa: PLC0415 - imports boto3

    _stream_of(folder)
    with world.listener.progress("records read") as advance:
        return [
            {
                "file": report.path.name,
                "state": report.state,
                "records": sum(1 for _ in _each(records_in(report.path), advance)),
                "size_bytes": report.size_bytes,
                "damage": report.damage or None,
            }
            for report in reports(folder)
        ]


def save(world: World, folder: Path, to: Path, *, sound: bool) -> list[dict[str, Any]]:
    """Write the whole records of damaged files to a new file, then move those files aside.

    With ``sound``, also those of undamaged files, of producers that have ended.
    """
    _stream_of(folder)
    with _new_file(to) as write:
        return _save_each(world, folder, write, sound=sound)


def put(world: World, config: SpoutConfig, folder: Path, *, sound: bool) -> list[dict[str, Any]]:
    from kinesis_spout.kinesis.retry_policy import RetryPolicy  # noqa: PLC0415 - imports boto3
    from kinesis_spout.kinesis.write.record_putter import put_all  # noqa: PLC0415

    stream = _stream_of(folder)
    if not is_same(config.stream, stream):
        raise WrongArguments(
            f"stream: expected {stream!r}, whose spool is in {str(folder)!r}, got {config.stream!r}"
        )

    def send(records: "Iterable[Spooled]") -> None:
        put_all(world.client(config), config.stream, (record.entry for record in records), RetryPolicy())

    return _save_each(world, folder, send, sound=sound)


@contextmanager
def _new_file(path: Path) -> "Iterator[Callable[[Iterable[Spooled]], None]]":
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise WrongArguments(f"to: expected a file that does not exist yet, got {error}") from error
    with os.fdopen(descriptor, "w") as file:

        def write(records: "Iterable[Spooled]") -> None:
            try:
                for record in records:
                    file.write(_line(record))
                file.flush()
                os.fsync(descriptor)
            except OSError as error:
                raise SpoolError(
                    f"expected to write to {str(path)!r}, got {error}; nothing was moved"
                ) from error

        yield write


def _save_each(
    world: World, folder: Path, keep: "Callable[[Iterable[Spooled]], None]", *, sound: bool
) -> list[dict[str, Any]]:
    from kinesis_spout.producer.spool.salvage import SAVED, reports, saving  # noqa: PLC0415 - imports boto3

    done: list[dict[str, Any]] = []
    with world.listener.progress("records read") as advance:
        for report in reports(folder):
            if report.state == "in use" or (report.state == "left over" and not sound):
                continue
            count = 0

            def one_more(one: int) -> None:
                nonlocal count
                count += one
                advance(one)

            with saving(report.path) as records:
                if records is None:  # a producer was quicker
                    continue
                keep(_each(records, one_more))
            done.append(
                {"file": report.path.name, "records": count, "moved_to": f"{report.path.name}{SAVED}"}
            )
    return done


def _each(records: "Iterable[Spooled]", advance: "Callable[[int], None]") -> "Iterator[Spooled]":
    for record in records:
        advance(1)
        yield record


def _line(record: "Spooled") -> str:
    entry = record.entry
    values = {
        "partition_key": entry.partition_key,
        "explicit_hash_key": entry.explicit_hash_key,
        "data": base64.b64encode(entry.data).decode(),
    }
    return json.dumps(values) + "\n"


def _stream_of(folder: Path) -> str:
    from kinesis_spout.producer.spool.folder import SpoolFolder  # noqa: PLC0415 - imports boto3

    stream = SpoolFolder(folder).stream()
    if stream is None:
        raise NotFound(
            f"expected the folder of a spool, got {str(folder)!r}, which has no stream.json: name the folder that "
            "the producer was given"
        )
    return stream
