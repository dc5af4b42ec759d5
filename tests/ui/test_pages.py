"""Every page says which engine events it follows, and does something with each of them."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap

import pytest

import engine.events
import ui
from engine.events import Event
from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from ui.context.page import Page
from ui.context.page_context import GROUPS

EVENTS = {name for name, value in vars(engine.events).items() if isinstance(value, type) and issubclass(value, Event)}
SPECS = [spec for _group, specs in GROUPS for spec in specs]


def followers() -> list[type]:
    """The pages, and the parts that pages hand their events on to."""
    found: dict[str, type] = {}
    for module in pkgutil.walk_packages(ui.__path__, "ui."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and value is not Page and "FOLLOWS" in vars(value):
                found[f"{value.__module__}.{value.__qualname__}"] = value
    return [found[name] for name in sorted(found)]


def named(follower: type) -> set[str]:
    """The events that its ``on_event`` tells apart by name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(follower.on_event)))  # type: ignore[attr-defined]
    inside = [statement for each in tree.body if isinstance(each, ast.FunctionDef) for statement in each.body]
    return {node.id for statement in inside for node in ast.walk(statement) if isinstance(node, ast.Name)} & EVENTS


def test_there_are_followers() -> None:
    assert {spec.load() for spec in SPECS} <= set(followers()) and len(followers()) > len(SPECS)


@pytest.mark.parametrize("follower", followers(), ids=lambda each: each.__name__)
def test_what_a_page_tells_apart_it_follows(follower: type) -> None:
    followed = {each.__name__ for each in follower.FOLLOWS}  # type: ignore[attr-defined]
    assert followed
    assert named(follower) <= followed, "an event that the window never hands on"


def test_the_window_tells_a_page_of_what_it_follows_and_of_nothing_else(
    make_engine: EngineMaker, make_stage: StageMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = make_stage(make_engine(folder=None)).window
    told: dict[str, list[type]] = {spec.key: [] for spec in SPECS}
    for key, heard in told.items():
        monkeypatch.setattr(window.page(key), "on_event", lambda event, heard=heard: heard.append(type(event)))
    for name in sorted(EVENTS - {"Event"}):
        kind = getattr(engine.events, name)
        window.hand_on(kind.__new__(kind))
    assert {key: set(heard) for key, heard in told.items()} == {key: set(window.page(key).FOLLOWS) for key in told}
