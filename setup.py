"""What ``pyproject.toml`` cannot say: the native module, README's links; ``release.packing`` has the rest.

``NATIVE_DECODER`` in the environment chooses what is built:

============ =====================================================================================
not set      the native module, where there is a C compiler and Python has a lock; else Python does its work
``required`` the native module, or the build fails
``none``     no native module: a wheel for every platform (``py3-none-any``)
============ =====================================================================================
"""

import os
import re
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # where a build in isolation does not look

from release.packing import PROJECT, ReproducibleSdist, WheelWithBillOfMaterials  # noqa: E402 - see above

RELATIVE_LINK = re.compile(r"(!?\[(?:[^][]|\[[^]]*\])*\]\()(?![a-z]+:|#)([^)\s]+)\)")
DECODERS = ("", "none", "required")


def readme_with_absolute_links() -> str:
    """Let README's links lead to the repository as it was released: PyPI has none of its files."""
    repository, version = PROJECT["urls"]["Repository"], PROJECT["version"]
    ref = "main" if "dev" in version else f"v{version}"
    raw = repository.replace("https://github.com/", "https://raw.githubusercontent.com/")

    def absolute(link: re.Match[str]) -> str:
        before, target = link.groups()
        address = f"{raw}/{ref}" if before.startswith("!") else f"{repository}/blob/{ref}"
        return f"{before}{address}/{target})"

    return RELATIVE_LINK.sub(absolute, (HERE / "README.md").read_text(encoding="utf-8"))


decoder = os.environ.get("NATIVE_DECODER", "")
if decoder not in DECODERS:
    message = f"expected NATIVE_DECODER to be required or none, or not set, got {decoder!r}"
    raise SystemExit(message)
if not decoder and sysconfig.get_config_var("Py_GIL_DISABLED"):
    decoder = "none"  # Python without its lock has no limited API
native_decoder = Extension(
    "kinesis_spout.kinesis._native",
    ["kinesis_spout/kinesis/_native.c"],
    # Of Python 3.11: one wheel serves all later versions.
    py_limited_api=True,
    optional=decoder != "required",
    # Debug information has the path of the folder in which it was made.
    extra_compile_args=["-g0"] if os.name == "posix" else [],
)
setup(
    long_description=readme_with_absolute_links(),
    long_description_content_type="text/markdown",
    ext_modules=[] if decoder == "none" else [native_decoder],
    cmdclass={"bdist_wheel": WheelWithBillOfMaterials, "sdist": ReproducibleSdist},
    options={} if decoder == "none" else {"bdist_wheel": {"py_limited_api": "cp311"}},
)
