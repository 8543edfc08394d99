"""One child: the process of a component in another language, with its pipes and the end of its standard error.

It has its own process group, so that all processes it started end with it, and an interrupt at the terminal
does not reach it. When this process dies, a shell that waits for that ends the group. Its standard input and
output are non-blocking at our ends; the holder of its lease reads and writes them (``children``), which can be
another process.

Its command runs in the folder ``resources``. Storm ships that with the topology; Spark ships files and archives
with a job (``spark.files``, ``spark.archives``), and a component names what it needs of them.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

from kinesis_spout.model.directories import check_private
from kinesis_spout.model.errors import InvalidConfig

END_SECONDS: Final = 2.0
"""The time that a child may take to end, after its input has ended."""

_DEATH_SECONDS: Final = 0.5
"""The time within which a process ends after its output."""
_TAIL_BYTES: Final = 8 * 1024
_SHOWN_CHARACTERS: Final = 600
"""Standard error in the reason of a failure, where there is little room. All that is kept goes to the log."""
_GUARD: Final = f'read _ || {{ sleep {END_SECONDS:g}; kill -s KILL -- "-$0"; }}'
"""For the shell, with the group's number: its input ends without a line when this process has died."""
_PIPE_BYTES: Final = 1024 * 1024
_SECRETS: Final = ("PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_SOCK_PATH")
"""Variables that only Spark's Python workers may know."""


_log = logging.getLogger(__name__)


class ChildSettings(msgspec.Struct, frozen=True, kw_only=True):
    command: tuple[str, ...]
    resources: str | None = None
    """Its folder, for ``find_resources`` on the machine where it is started. None: that of its owner."""
    environment: dict[str, str] = {}


def check_command(settings: ChildSettings, folder: str | None) -> None:
    """Find the command on this machine. InvalidConfig: there is none; names it, and where it was looked for."""
    program = settings.command[0]
    if os.sep in program:
        place = Path(folder or ".").absolute() / program
        if not os.access(place, os.X_OK) or place.is_dir():
            raise InvalidConfig(f"command {list(settings.command)}: expected an executable file at {place}")
        return
    path = _environment(settings).get("PATH", os.defpath)
    if shutil.which(program, path=path) is None:
        raise InvalidConfig(
            f"command {list(settings.command)}: expected a program {program!r} in the PATH of this machine, "
            f"which is {path}; install it there, or name it by its whole path"
        )


class ChildProcess:
    """A running child. Mutable; one thread calls ``end`` or ``end_at_once``, once."""

    def __init__(self, settings: ChildSettings, folder: str | None = None) -> None:
        """Start it, in a folder; None: where this process runs. InvalidConfig: see ``check_command``."""
        check_command(settings, folder)
        self.pid_folder = tempfile.mkdtemp(prefix="kinesis-spout-pid-")
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own component
                settings.command,
                cwd=folder,
                env=_environment(settings),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                process_group=0,
            )
        except OSError as error:
            shutil.rmtree(self.pid_folder, ignore_errors=True)
            raise InvalidConfig(
                f"command {list(settings.command)}: expected it to start, got {error}"
            ) from error
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        self._stdin, self._stdout = stdin, stdout
        self.stdin, self.stdout = stdin.fileno(), stdout.fileno()
        for pipe in (self.stdin, self.stdout):
            os.set_blocking(pipe, False)
            with contextlib.suppress(OSError, AttributeError):  # not everywhere, and not for everybody
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._guard: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):  # there is no shell
            self._guard = subprocess.Popen(  # noqa: S603 - our own command line
                ["/bin/sh", "-c", _GUARD, str(self.pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        self._tail = b""
        self._drain = threading.Thread(
            target=self._drain_stderr, args=(stderr,), name=f"stderr of {self.pid}", daemon=True
        )
        self._drain.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._stdin.close()
        self._ended(END_SECONDS)

    def end_at_once(self) -> str:
        """Kill it soon: it hangs, or its output has ended. Say how it ended, and the end of its standard error."""
        words = self._ended(_DEATH_SECONDS)
        if len(self._tail) > _SHOWN_CHARACTERS:
            _log.warning(
                "the standard error of process %d ends with:\n%s",
                self.pid,
                self._tail.decode(errors="replace"),
            )
        return words

    def _ended(self, wait_seconds: float) -> str:
        by_itself = True
        try:
            self._process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            by_itself = False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # also what it has started
        self._process.wait()
        if self._guard is not None:
            self._guard.communicate(b"\n")
        self._drain.join(END_SECONDS)
        self._stdin.close()
        self._stdout.close()
        shutil.rmtree(self.pid_folder, ignore_errors=True)
        how = _how_it_ended(self._process.returncode) if by_itself else "it was killed"
        tail = self._tail.decode(errors="replace").strip()
        if not tail:
            return f"{how}; it wrote no standard error"
        return f"{how}; its standard error ends with:\n{tail[-_SHOWN_CHARACTERS:]}"

    def _drain_stderr(self, stderr: IO[bytes]) -> None:
        with stderr:
            while data := os.read(stderr.fileno(), 64 * 1024):
                self._tail = (self._tail + data)[-_TAIL_BYTES:]


def _environment(settings: ChildSettings) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _SECRETS}
    return inherited | settings.environment


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"


_ARCHIVES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def find_resources(resources: str | os.PathLike[str], roots: Sequence[Path] | None = None) -> Path:
    """Find a folder, or unpack an archive, by its path here or below ``roots``; None: ``shipped_to()``.

    Only the last part counts of a name that was shipped with the job ("resources" for ``--archives
    resources.zip#resources``, "resources.zip" without the second name and for ``--files``).

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
