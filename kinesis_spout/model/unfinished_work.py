"""Handlers whose work is not done when they return: lazy iterators, and work that nobody waits for.

Python runs nothing of a function with a ``yield`` in it when it is called, nor of an ``async def``, nor does
``map`` call anything: each gives an object, and ignoring it would ack the record without having handled it. So
such functions are refused at the start if recognised, and returning such an object fails the record.
"""

import inspect
from collections.abc import Callable
from types import CoroutineType, GeneratorType
from typing import Any, Final

from kinesis_spout.model.errors import InvalidConfig, refuse_other_kind

_KINDS: Final = {
    CoroutineType: "a coroutine, which nobody awaits: make the handler itself an async def where it may be one",
    GeneratorType: "a generator, of which nothing has run: leave the `yield` out, or loop over it in the handler",
}
_GOES_ON: Final = ("__await__", "add_done_callback", "is_alive")
"""Attributes of the types of awaitables, of futures, and of threads and processes."""


def is_coroutine_function(handler: Callable[..., object]) -> bool:
    """Return whether a handler is ``async``: a function, a partial of one, or an object with such a call."""
    return _is(inspect.iscoroutinefunction, handler)


def refuse_generator_function(where: str, handler: Callable[..., object]) -> None:
    """Refuse a function with a ``yield`` in it: plain, async, a partial, or an object with such a call.

    A decorated function is judged alone: its decorator may run the generator.

    Raises:
        InvalidConfig: it is one, or no function at all. ``where`` names the option.
    """
    refuse_other_kind(where, "a function", handler, "__call__")
    if _is(inspect.isgeneratorfunction, handler) or _is(inspect.isasyncgenfunction, handler):
        raise InvalidConfig(
            f"{where}: expected a function that has done its work when it returns, got a generator function, "
            f"{_name(handler)}: a call of it runs nothing, so each record would be acked unhandled. Leave the "
            "`yield` out"
        )


def refuse_unfinished_function(where: str, handler: Callable[..., object]) -> None:
    """Refuse an ``async def`` too, where it would not be awaited.

    Raises:
        InvalidConfig: as ``refuse_generator_function``.
    """
    refuse_generator_function(where, handler)
    if is_coroutine_function(handler):
        raise InvalidConfig(
            f"{where}: expected a function that has done its work when it returns, got an async def, "
            f"{_name(handler)}, which nobody awaits here: make it a plain function, which may call asyncio.run"
        )


def refuse_unfinished(returned: object) -> None:
    """Refuse the result of a call, if the work is still to be done. Call it only if that is not None.

    Raises:
        TypeError: it is a generator or another lazy iterator, an awaitable, a future, a result of a
            ``multiprocessing`` pool, a thread or a process. It was closed or cancelled, if it can be; its
            record fails.
    """
    kind = type(returned)
    what = _KINDS.get(kind)
    if what is None:
        if hasattr(kind, "asend"):
            what = "an async generator, of which nothing has run: leave the `yield` out"
        elif any(hasattr(kind, each) for each in _GOES_ON) or _is_of_pool(kind):
            what = f"a {kind.__name__}, for which nobody waits: wait for its result, and return None"
        elif _is_iterator(returned) and (hasattr(kind, "throw") or not hasattr(kind, "close")):
            # Cursors of databases and files are iterators too, but can be closed, and have done their work.
            what = f"a {kind.__name__}, which works as its items are taken: loop over it in the handler"
        else:
            return
    given: Any = returned
    for end in ("close", "cancel"):
        # A process that runs cannot be closed, only ended.
        if hasattr(kind, end) and not hasattr(kind, "is_alive"):
            getattr(given, end)()
            break
    raise TypeError(f"expected a handler that has done its work when it returns, got {what}")


def _is_iterator(returned: Any) -> bool:
    return hasattr(type(returned), "__next__") and iter(returned) is returned


def _is_of_pool(kind: type) -> bool:
    """Return whether it is the ``AsyncResult`` of a pool. By its name: ``billiard`` and others have it, too."""
    return any(each.__name__ == "ApplyResult" for each in kind.__mro__)


def _is(predicate: Callable[[object], bool], handler: Callable[..., object]) -> bool:
    return predicate(handler) or predicate(
        getattr(handler, "__call__", None)  # noqa: B004 - whether it is callable is not the question
    )


def _name(handler: Callable[..., object]) -> str:
    return getattr(handler, "__qualname__", None) or type(handler).__name__
