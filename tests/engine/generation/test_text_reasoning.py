"""Reasoning and answer: told apart on evidence only, the same on every split, no tag ever shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.generation.text.reasoning import Piece, ReasoningSpans, ReasoningSplitter, prompt_opens_reasoning

parts = st.lists(
    st.sampled_from(["<think>", "</think>", "<", "</", "think>", "a", "b c", " ", "\n", "\n\n", "<thin", "é🙂"]),
    max_size=10,
)


def run(pieces: Sequence[str], **options: bool) -> tuple[str, str]:
    """(reasoning, content) of a text fed in pieces."""
    splitter = ReasoningSplitter(**options)
    out: list[Piece] = []
    for piece in pieces:
        out += splitter.feed(piece)
    out += splitter.finish()
    return (
        "".join(piece.text for piece in out if piece.kind == "reasoning"),
        "".join(piece.text for piece in out if piece.kind == "content"),
    )


def cuts(text: str) -> list[list[str]]:
    """The text whole, by characters, and cut once and twice at every place."""
    once = [[text[:i], text[i:]] for i in range(len(text) + 1)]
    twice = [[text[:i], text[i:j], text[j:]] for i in range(len(text)) for j in range(i, len(text))]
    return [[text], list(text), *once, *twice]


@pytest.mark.parametrize(
    ("text", "prompt_opened", "reasoning", "content"),
    [
        ("Hello there.\n", False, "", "Hello there.\n"),
        ("  Hello ", False, "", "  Hello "),
        (" \n", False, "", " \n"),
        ("a < b and <thing>", False, "", "a < b and <thing>"),
        ("no opening</think> here", False, "", "no opening</think> here"),
        ("<think>why</think>because", False, "why", "because"),
        ("\n<think>\nwhy\n\nnot\n</think>\n\nbecause \n", False, "why\n\nnot", "because"),
        ("Hm. <think>why</think> So.", False, "why", "Hm.  So."),
        ("<think>never closed ", False, "never closed", ""),
        ("Before <think>open", False, "open", "Before "),
        ("<think>a</think><think>b</think>", False, "a", "<think>b</think>"),
        ("<think></think>x", False, "", "x"),
        ("why\n</think>\n\nbecause", True, "why", "because"),
        ("all of it is thought\n", True, "all of it is thought", ""),
        ("\n<think>\nwhy</think>because", True, "why", "because"),
        ("a <think> b</think>c", True, "a <think> b", "c"),
        ("<thinking</think>c", True, "<thinking", "c"),
        (" <th", True, "<th", ""),
        ("", True, "", ""),
        ("x</thin</think>y", True, "x</thin", "y"),
    ],
)
def test_the_parts_are_the_same_on_every_split(text: str, prompt_opened: bool, reasoning: str, content: str) -> None:
    for pieces in cuts(text):
        assert run(pieces, prompt_opened=prompt_opened) == (reasoning, content)


@pytest.mark.parametrize(
    ("text", "prompt_opened", "found"),
    [("plain", False, False), ("<think></think>plain", False, True), ("thought", True, True)],
)
def test_whether_there_was_evidence(text: str, prompt_opened: bool, found: bool) -> None:
    splitter = ReasoningSplitter(prompt_opened=prompt_opened)
    splitter.feed(text)
    splitter.finish()
    assert splitter.found is found


@settings(deadline=None)
@given(tokens=parts, prompt_opened=st.booleans(), data=st.data())
def test_any_text_any_split(tokens: list[str], prompt_opened: bool, data: st.DataObject) -> None:
    text = "".join(tokens)
    places = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    edges = [0, *places, len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    expected = run(list(text), prompt_opened=prompt_opened)
    assert run(pieces, prompt_opened=prompt_opened) == expected
    if "<think>" not in text and not prompt_opened:
        assert expected == ("", text)
    reasoning, content = expected
    assert reasoning == reasoning.strip()
    assert "</think>" not in reasoning
    # Nothing but white space, one open tag and one close tag is ever lost.
    lost = Counter("".join(text.split()))
    lost.subtract("".join((content + reasoning).split()))
    tags = ("", "<think>", "</think>", "<think></think>")
    assert {c: n for c, n in lost.items() if n} in [dict(Counter(tag)) for tag in tags]


def test_text_goes_out_as_soon_as_it_is_sure() -> None:
    splitter = ReasoningSplitter()
    fed = [splitter.feed(piece) for piece in ["<thi", "nk>", "so ", "it", " is</", "think>", "\n", "Yes", "!\n", "Bye"]]
    assert fed == [
        [],
        [],
        [Piece("reasoning", "so")],
        [Piece("reasoning", " it")],
        [Piece("reasoning", " is")],
        [],
        [],
        [Piece("content", "Yes")],
        [Piece("content", "!")],
        [Piece("content", "\nBye")],
    ]
    assert splitter.finish() == []


def test_both_kinds_in_one_piece_keep_their_order() -> None:
    splitter = ReasoningSplitter()
    assert splitter.feed("A <think>b</think> C") == [
        Piece("content", "A "),
        Piece("reasoning", "b"),
        Piece("content", " C"),
    ]


def test_switched_off_nothing_is_split() -> None:
    text = " <think>a</think> b "
    assert run(list(text), enabled=False) == ("", text)
    assert run([text], enabled=False, prompt_opened=True) == ("", text)


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<|im_start|>assistant\n", False),
        ("", False),
    ],
)
def test_what_a_prompt_says(prompt: str, opened: bool) -> None:
    assert prompt_opens_reasoning(prompt) is opened


def spans(pieces: Sequence[str], prompt_opened: bool) -> tuple[str, str]:
    """The text, and for each character of it "r" (aside from the answer) or "a"."""
    telling = ReasoningSpans(prompt_opened)
    parts = [part for piece in pieces for part in telling.feed(piece)] + telling.finish()
    return "".join(text for text, _ in parts), "".join(("r" if aside else "a") * len(text) for text, aside in parts)


@pytest.mark.parametrize(
    ("text", "prompt_opened", "kinds"),
    [
        ("a < b", False, "aaaaa"),
        (" \n", False, "aa"),
        (" a", False, "aa"),
        ("\n<think>no</think>\nyes\n", False, "r" + "r" * 7 + "rr" + "r" * 8 + "r" + "aaaa"),
        ("Hm.<think>no</think> yes", False, "aaa" + "r" * 17 + "aaaa"),
        ("no</think>\n\nyes", True, "rr" + "r" * 8 + "rr" + "aaa"),
        ("no</thi", True, "rrrrrrr"),
        ("<thi", False, "aaaa"),
        ("<think>a</think><think>b", False, "r" * 16 + "a" * 8),
    ],
)
def test_which_characters_are_aside_from_the_answer_on_every_split(text: str, prompt_opened: bool, kinds: str) -> None:
    for pieces in cuts(text):
        assert spans(pieces, prompt_opened) == (text, kinds), pieces


@settings(deadline=None)
@given(parts, st.booleans())
def test_what_is_shown_as_the_answer_is_what_is_not_aside(pieces: list[str], prompt_opened: bool) -> None:
    text, kinds = spans(pieces, prompt_opened)
    assert text == "".join(pieces)
    answer = "".join(letter for letter, kind in zip(text, kinds, strict=True) if kind == "a")
    _, content = run(pieces, prompt_opened=prompt_opened)
    assert answer.strip() == content.strip()
