"""How a message says what was received."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import MillmError, described


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (5, "the number 5"),
        (-1, "the number -1"),
        (1.5, "the number 1.5"),
        (float("nan"), "the number nan"),
        (10**19, "the number 10000000000000000000"),
        (10**20, "a number of very many digits"),
        (-(10**400), "a number of very many digits"),
        ("", "an empty string"),
        ("robot", 'the string "robot"'),
        ("a\nb", 'the string "a\\nb"'),
        ("東京", 'the string "東京"'),
        ("x" * 40, f'the string "{"x" * 40}"'),
        ("x" * 1_000_000, "a string of 1000000 characters"),
        ([], "a list of 0 items"),
        ([[1, 2]], "a list of 1 item"),
        ({"a": "secret"}, "an object with 1 key"),
        ({}, "an object with 0 keys"),
    ],
)
def test_what_was_received(value: Any, words: str) -> None:
    assert described(value) == words


@pytest.mark.parametrize("name", ["api_key", "apikey", "API_KEY", "hf_token", "token", "a.b.access_token", "password"])
def test_secrets_are_not_shown(name: str) -> None:
    assert described("sesame", name) == "a string of 6 characters"


@pytest.mark.parametrize(
    "name", ["messages", "messages.0.role", "extra_messages.1.0.content", "prompt.3", "stop", "input"]
)
def test_what_somebody_says_is_not_repeated(name: str) -> None:
    assert described("sesame", name) == "a string of 6 characters"


def test_other_fields_are_shown() -> None:
    assert described("sesame", "chat_template_kwargs") == 'the string "sesame"'
    assert described("sesame", "max_tokens") == 'the string "sesame"'


def test_a_number_too_long_for_text_is_described() -> None:
    assert described(10**5000) == "a number of very many digits"


def test_words_are_unicode_whatever_a_file_said() -> None:
    error = MillmError("The config names '\ud800'.", remedy="Correct '\udfff'.")
    assert error.one_line() == "The config names '\\ud800'. Correct '\\udfff'."
    assert str(error) == "The config names '\\ud800'."


def test_a_message_stays_one_that_can_be_read() -> None:
    error = MillmError(f"'{'k' * 1_000_000}' is no field. The end.", param="p" * 5000, remedy="r" * 1_000_000)
    assert len(error.message) == 8000
    assert error.message.startswith("'kkk") and error.message.endswith("' is no field. The end.")
    assert error.remedy is not None and len(error.remedy) == 8000
    assert error.param is not None and len(error.param) == 300
    assert MillmError("m" * 8000).message == "m" * 8000
