"""What MODEL_ALIASES may hold, in words where it may not."""

from __future__ import annotations

from typing import Any

import pytest

from server.aliases import Aliases


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"": "m"}, "1 to 100 characters"),
        ({" ": "m"}, "1 to 100 characters"),
        ({"x" * 101: "m"}, "1 to 100 characters"),
        ({"\ud800": "m"}, "surrogate"),
        ({"a": ""}, "'model' of 'a' is a name"),
        ({"a": 7}, "a model's name or an object"),
        ({"a": None}, "a model's name or an object"),
        ({"a": {}}, "'model' of 'a' is a name"),
        ({"a": {"model": "m", "dial": 1}}, "'dial'"),
        ({"a": {"model": "m", "profile": ""}}, "'profile' of 'a'"),
        ({"a": {"model": "m", "steering_intensity": 3}}, "0 to 2"),
        ({"a": {"model": "m", "steering_intensity": True}}, "0 to 2"),
        ({"a": {"model": "m", "chat_template_kwargs": []}}, "an object"),
    ],
)
def test_what_is_refused(value: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="a") as caught:
        Aliases(value)
    assert words in str(caught.value)


def test_what_is_taken() -> None:
    names = Aliases(
        {
            "x" * 100: "m",
            "a": {"model": "m", "profile": None, "steering_intensity": "off", "chat_template_kwargs": {"k": [1]}},
            "*": "everything",
            "a*c": "a star inside is a star",
        }
    )
    found = names.find("a")
    assert found is not None
    assert (found.model, found.profile, found.steering_intensity) == ("m", None, "off")
    assert found.chat_template_kwargs == {"k": [1]}
    assert [each.name for each in names.listed()] == ["x" * 100, "a", "a*c"]
    assert [each.model for name in ("abc", "a*c", "") if (each := names.find(name))] == [
        "everything",
        "a star inside is a star",
        "everything",
    ]
    assert Aliases({}).find("a") is None
