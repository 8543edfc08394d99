"""When the collector is paused, and that it goes on after."""

import gc
from collections.abc import Iterator

import pytest

from kinesis_spout.model.cycle_search import paused_cycle_search


@pytest.fixture(autouse=True)
def _goes_on() -> Iterator[None]:
    yield
    gc.enable()


def test_it_goes_on_after_the_last_of_several_pauses() -> None:
    with paused_cycle_search():
        with paused_cycle_search():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError, match="no"), paused_cycle_search():
        raise ValueError("no")
    assert gc.isenabled()


def test_one_that_the_user_has_disabled_stays_so() -> None:
    gc.disable()
    with paused_cycle_search():
        assert not gc.isenabled()
    assert not gc.isenabled()
