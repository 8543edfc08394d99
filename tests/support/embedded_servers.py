"""Which Java processes serve a data directory, as the operating system has it."""

import subprocess
from pathlib import Path


def java_processes(data_dir: Path) -> list[int]:
    """Give the processes whose command line is Java's with this directory's configuration."""
    table = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,stat=,args="], check=True, capture_output=True, text=True
    )
    found = []
    for line in table.stdout.splitlines():
        pid, state, *command = line.split(maxsplit=2)
        is_java = command and command[0].split()[0].endswith("java")
        if is_java and f"{data_dir}/zoo.cfg" in command[0] and not state.startswith("Z"):
            found.append(int(pid))
    return found
