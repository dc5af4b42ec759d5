"""So many of a thing, in its own number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from engine.counting import plural, so_many
from engine.documents.binding import AttachedSae, SaeReference, bind
from engine.errors import InvalidParameter, described
from engine.generation.embeddings import EmbeddingRequest

ROOT = Path(__file__).resolve().parents[2]


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


def test_words_are_put_into_their_number_in_one_place() -> None:
    """No other piece of the program hangs an s to a word, or says that there may be one."""
    found = []
    for package in ("app", "engine", "server", "ui"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                ends = (node.body, node.orelse) if isinstance(node, ast.IfExp) else ()
                hung = {getattr(each, "value", None) for each in ends} in ({"", "s"}, {"", "es"})
                text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
                if hung or re.search(r"[a-z]\(e?s\)", text):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []


def test_one_is_one() -> None:
    assert described("x", "api_key") == "a string of 1 character"
    assert described(["x"]) == "a list of 1 item"
    assert described({"x": 1, "y": 2}) == "an object with 2 keys"
    binding = bind(SaeReference(layer=1, n_features=1), [AttachedSae("a", 1, 64, 32)])
    assert binding.reason == "it was made for an SAE with 1 feature and 'a' at layer 1 has 64"
