"""Finds the folder that a component's command runs in, wherever the job brought it to.

Storm ships a folder ``resources/`` with the topology and runs commands in it. Spark ships files and archives
with a job (``spark.files``, ``spark.archives``, ``--files``, ``--archives``); a component names what it needs
of them.
"""

import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kinesis_spout.model.directories import check_private
from kinesis_spout.model.errors import InvalidConfig

_ARCHIVES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def find_resources(resources: str | os.PathLike[str], roots: Sequence[Path] | None = None) -> Path:
    """Find a folder, or unpack an archive, by its path here or below ``roots``; None: ``shipped_to()``.

    Of the name of something that was shipped with the job only the last part counts ("resources" for
    ``--archives resources.zip#resources``, "resources.zip" without the second name and for ``--files``).

    InvalidConfig: it is nowhere; names the places. PermissionError: another user owns the place to unpack to.
    """
    given = Path(resources)
    within = shipped_to() if roots is None else roots
    places = dict.fromkeys([*(root / given for root in within), *(root / given.name for root in within)])
    for place in places:
        if place.is_dir():
            return place
        if place.is_file():
            return _unpacked(place)
    raise InvalidConfig(
        f"resources: expected a folder or an archive, but there is none at {' or '.join(map(str, places))}; give "
        "a path that exists on every machine, or ship it with the job (--archives resources.zip#resources, or "
        'spark.sparkContext.addArchive("resources.zip#resources")) and give its name'
    )


def shipped_to() -> list[Path]:
    """The working folder of this process, and where Spark puts what a job ships, if it is Spark's process."""
    from pyspark import SparkFiles  # noqa: PLC0415 - not needed where the path exists

    roots = [Path.cwd()]  # of a container of YARN or Kubernetes
    try:
        roots.append(Path(SparkFiles.getRootDirectory()))
    except (AssertionError, AttributeError, TypeError):  # no SparkContext has begun here
        return roots
    return roots


def _unpacked(archive: Path) -> Path:
    if not archive.name.endswith(_ARCHIVES):
        raise InvalidConfig(
            f"resources: expected a folder, or an archive ({', '.join(_ARCHIVES)}), got the file {archive}"
        )
    status = archive.stat()
    name = f"{archive.name}-{status.st_mtime_ns:x}-{status.st_size:x}"
    parent = archive.parent if os.access(archive.parent, os.W_OK) else Path(tempfile.gettempdir())
    folder = parent / f".{name}-{os.getuid()}"
    if folder.is_dir():
        check_private(folder)
        return folder
    unpacking = Path(tempfile.mkdtemp(prefix=f".{name}", dir=parent))
    try:
        _unpack(archive, unpacking)
        unpacking.chmod(0o700)  # an archive can have a mode for its top
        # The first process wins; what another one unpacked meanwhile is the same.
        unpacking.rename(folder)
    except OSError:
        shutil.rmtree(unpacking, ignore_errors=True)
        if not folder.is_dir():
            raise
        check_private(folder)
    return folder


def _unpack(archive: Path, folder: Path) -> None:
    if archive.suffix != ".zip":
        # The first releases of Python 3.11 cannot filter; the archive is the job's own.
        filters = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        shutil.unpack_archive(archive, folder, **filters)  # type: ignore[arg-type]
        return
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            place = Path(opened.extract(member, folder))
            mode = member.external_attr >> 16 & 0o777
            if mode and place.is_file():  # zipfile forgets what may be executed
                place.chmod(mode | 0o600)
