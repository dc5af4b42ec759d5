"""Large JSON in small steps: the same values as the standard decoder, whatever the sizes, and the same refusals."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import json_text
from engine.json_text import JsonText, loads

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=6),
    max_leaves=30,
)


@given(value=VALUES, indent=st.sampled_from([None, 1]))
@settings(max_examples=60, deadline=None)
def test_the_same_as_the_standard_decoder_with_any_step(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    steps = json_text._STEPS
    try:
        json_text._STEPS = (3, 7)
        # The standard decoder reads a number only if it ends within a step.
        small = all(len(word) < 7 for word in text.replace(",", " ").replace("]", " ").replace("}", " ").split())
        if small:
            assert loads(text) == value
    finally:
        json_text._STEPS = steps
    assert loads(text) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", "{", '{"a"', '{"a":', '{"a":1', '{"a":1,}', "[1", "[1,]", '"a', "tru", "[1] 2", '{"a" 1}', "{1:2}"],
)
@pytest.mark.parametrize("padding", [0, 70_000])
def test_what_is_no_json_is_refused(text: str, padding: int) -> None:
    with pytest.raises(ValueError):
        loads(" " * padding + text)
    if text and padding:
        with pytest.raises(ValueError):
            loads('{"x": "' + "y" * padding + '", "z": ' + text)


@pytest.mark.parametrize("text", ["[" * 1_000_000, '{"a":' * 1_000_000, "[" * 5_000 + "]" * 5_000])
def test_nesting_without_end_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        loads(text)


def test_a_long_value_is_entered_and_a_short_one_is_not() -> None:
    rows = [{"feature": n, "label": f"label {n}"} for n in range(20_000)]
    text = json.dumps({"version": 1, "labels": rows, "note": "x" * 100_000})
    assert loads(text) == json.loads(text)


def test_members_and_elements_are_looked_at_one_by_one() -> None:
    cursor = JsonText('{"a": [1, 2], "b": {"c": [3]}, "d": "e"}')
    seen = []
    for name in cursor.members():
        if name == "a":
            seen += [cursor.value() for _ in cursor.elements()]
        elif name == "d":
            seen.append(cursor.value())
    cursor.end()
    assert seen == [1, 2, "e"]


def test_another_thread_goes_on_between_two_members() -> None:
    text = json.dumps({f"tensor.{n}": {"shape": [n, 1], "data_offsets": [n, n + 1]} for n in range(50_000)})
    begun, done, went_on = threading.Event(), threading.Event(), threading.Event()

    def meanwhile() -> None:
        begun.wait(60)
        # One step of this thread's own between two of the other's is all that is asked.
        if not done.is_set():
            went_on.set()

    def read() -> None:
        cursor = JsonText(text)
        for number, _ in enumerate(cursor.members()):
            if number == 0:
                begun.set()
                assert went_on.wait(60)
        done.set()

    thread, reader = threading.Thread(target=meanwhile), threading.Thread(target=read)
    thread.start()
    reader.start()
    reader.join(120)
    thread.join(60)
    assert done.is_set() and went_on.is_set()
