"""Storm's multilang protocol: bolts and spouts in any language, as processes that talk over pipes.

``frames`` and ``messages`` are the protocol, ``conversation`` its states; these are pure. ``component`` is to
write components in Python, ``spout_component`` is our spout as one. How topologies run on Spark is not here. Begin
with ``messages``. Running components of others is ``host``'s: ``ShellBolt`` and ``ShellSpout``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinesis_spout.multilang.host import ShellBolt, ShellSpout

__all__ = ["ShellBolt", "ShellSpout"]


def __getattr__(name: str) -> Any:
    """Import what runs processes when it is asked for: a component needs only the protocol."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kinesis_spout.multilang import host  # noqa: PLC0415 - see above

    return getattr(host, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
