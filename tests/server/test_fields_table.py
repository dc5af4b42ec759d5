"""The page about fields is made from the policy, and is the one in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from server import fields_table
from server.fields_table import PAGE, main, page


def rows(route: str) -> list[str]:
    """The rows of one route's table."""
    section = page().split(f"## `{route}`", 1)[1].split("\n## ", 1)[0]
    return [line for line in section.splitlines() if line.startswith("| `")]


def test_the_page_in_the_docs_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m server.fields_table"
    assert main(["--check"]) == 0


def test_a_page_that_is_not_current_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fields_table, "PAGE", tmp_path / "api-fields.md")
    assert main(["--check"]) == 1
    assert "api-fields.md is not current" in capsys.readouterr().err
    assert main([]) == 0
    assert main(["--check"]) == 0


@pytest.mark.parametrize(
    ("route", "row"),
    [
        ("POST /v1/chat/completions", "| `temperature` | honoured | honoured | 0 to 2 |  |  |"),
        ("POST /v1/chat/completions", "| `top_p` | honoured | honoured | 0 to 1 | reported: scoring |  |"),
        (
            "POST /v1/chat/completions",
            "| `n` | honoured | honoured | 1 to 128 | refused: scoring; `suffix` is sent | `1` |",
        ),
        ("POST /v1/completions", '| `tool_choice` | refused | refused |  |  | `"auto"`, `"none"` |'),
        ("POST /v1/chat/completions", "| `user` | reported | reported |  |  |  |"),
        (
            "POST /v1/completions",
            "| `repeat_penalty` | honoured | honoured | above 0, at most 2 | reported: scoring |  |",
        ),
        ("POST /v1/completions", "| `extra_messages` | refused | refused |  |  | `[]` |"),
        ("POST /v1/embeddings", "| `seed` | refused | refused |  |  |  |"),
    ],
)
def test_rows(route: str, row: str) -> None:
    assert row in rows(route)


def test_every_honoured_field_says_what_it_may_hold() -> None:
    for route in ("POST /v1/chat/completions", "POST /v1/completions", "POST /v1/embeddings"):
        for row in rows(route):
            _, name, here, gguf, values, *_ = (cell.strip() for cell in row.split("|"))
            assert bool(values) == ("honoured" in (here, gguf)), name
