"""Builds the optional native decoder; everything else is in ``pyproject.toml``.

Without a compiler the installation succeeds, and replies are decoded in Python.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "kinesis_spout.kinesis.read._native",
            ["kinesis_spout/kinesis/read/_native.c"],
            # Of Python 3.11: one wheel serves all later versions.
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
