"""So many of a thing, in its own number."""

from __future__ import annotations

import pytest

from engine.counting import plural, so_many
from engine.errors import InvalidParameter
from engine.generation.embeddings import EmbeddingRequest


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 tokens"), (1, "1 token"), (2, "2 tokens"), (12345, "12345 tokens")]
)
def test_its_own_number(number: int, words: str) -> None:
    assert so_many(number, "token") == words


def test_words_that_take_no_s() -> None:
    assert (plural(1, "entry", "entries"), plural(3, "entry", "entries")) == ("entry", "entries")


def test_a_limit_of_one_text() -> None:
    with pytest.raises(InvalidParameter) as caught:
        EmbeddingRequest(model="m", inputs=("a", "b")).check_count(1)
    assert caught.value.message == "'input' holds 2 texts; at most 1 are accepted."
    assert caught.value.remedy == "Send at most 1 text at once, or raise EMBEDDINGS_MAX_INPUTS."
