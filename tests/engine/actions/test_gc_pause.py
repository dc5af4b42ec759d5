"""The heavy libraries come in without a collection, and what is there then is set aside once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from engine.actions.models.gc_pause import Collector


class Circle:
    """Refers to itself, so that only a collection frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def nothing_stays_aside() -> Iterator[None]:
    gc.collect()
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.collect()


def test_no_collection_while_libraries_come_in_and_all_is_set_aside_once() -> None:
    collector = Collector()
    with collector.importing():
        assert not gc.isenabled()
        kept = Circle()
    assert gc.isenabled()
    aside = gc.get_freeze_count()
    assert aside > 1000
    assert not any(each is kept for each in gc.get_objects())
    later = Circle()
    with collector.importing():
        assert gc.isenabled()
    assert any(each is later for each in gc.get_objects())


def test_what_comes_later_is_still_collected() -> None:
    with Collector().importing():
        pass
    gone = weakref.ref(Circle())
    gc.collect()
    assert gone() is None


def test_a_failed_import_leaves_the_collector_as_it_was() -> None:
    collector = Collector()
    with pytest.raises(ImportError), collector.importing():
        raise ImportError("no such library")
    assert gc.isenabled() and gc.get_freeze_count() == 0
    with collector.importing():
        pass
    assert gc.get_freeze_count() > 0


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with Collector().importing():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
