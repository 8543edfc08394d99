"""Which kind of file system a folder is on: locks and shared memory, which the spool needs, hold on local ones."""

import os
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_NETWORK: Final = frozenset(
    {"afs", "ceph", "cifs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
    | {"fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "fuse.mount-s3", "fuse.rclone"}
)


def network_file_system(folder: Path, mounts: Path = _MOUNTS) -> str | None:
    """Name the kind of file system if it is one over a network; None if it is local, or the system does not say.

    Linux says it: proc(5), ``/proc/[pid]/mountinfo``.
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
