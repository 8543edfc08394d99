"""Which version of this package runs."""

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """Give the version; "unknown" where the package was not installed, as from a zip on an executor."""
    try:
        return version("kinesis-spout")
    except PackageNotFoundError:
        return "unknown"
