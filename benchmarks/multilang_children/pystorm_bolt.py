"""The same, of the PyPI package pystorm."""

from typing import Any

from pystorm.bolt import Bolt


class Echo(Bolt):  # type: ignore[misc]  # pystorm has no types
    """Emits what it gets."""

    def process(self, tup: Any) -> None:
        """Emit the same values."""
        self.emit(list(tup.values))


Echo().run()
