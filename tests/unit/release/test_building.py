"""What a build from source makes where the native module cannot be built."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
BUILD = """
import distutils.core, sysconfig
import setuptools
sysconfig.get_config_vars()["Py_GIL_DISABLED"] = 1
made = distutils.core.run_setup("setup.py", ["bdist_wheel"], stop_after="commandline")
made.get_command_obj("bdist_wheel").ensure_finalized()
print("modules:", made.ext_modules)
"""


def test_python_without_its_lock_gets_a_wheel_without_the_native_module() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUILD], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )

    assert "modules: []" in done.stdout, done.stderr
