"""What a build from source makes where the native module cannot be built."""

import os
import shutil
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


def test_a_wheel_without_the_native_module_is_for_every_platform(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns(
        ".*", "build", "docs", "site", "tests", "*.so", "*.egg-info", "localstack"
    )
    source = shutil.copytree(ROOT, tmp_path / "source", ignore=ignored)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", str(tmp_path)],
        cwd=source,
        env={**os.environ, "CC": "/bin/false", "NATIVE_DECODER": ""},
        capture_output=True,
        timeout=60,
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
