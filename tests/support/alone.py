"""Work that would disturb what else runs in the process of the tests."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Result = TypeVar("Result")


def in_a_process_of_its_own(work: Callable[..., Result], *args: object) -> Result:
    """What ``work`` gives, or raises, in a new process that has no other thread.

    ``work`` stands at the top of a module, so that the other process can import it.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(work, *args).result()
