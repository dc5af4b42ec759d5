"""Reasoning and answer: told apart on evidence only, the same on every split, no tag ever shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.generation.request import Piece, TokenInfo, joined, text_of
from engine.generation.text.parts import Kind, Part
from engine.generation.text.reasoning import Beginning, Edges, ReasoningSplitter, prompt_beginning
from engine.generation.text.stream import ChoiceText
from tests.engine.generation.made_tokenizers import byte_chunks, byte_level

BYTE_LEVEL = byte_level()

parts = st.lists(
    st.sampled_from(["<think>", "</think>", "<", "</", "think>", "a", "b c", " ", "\n", "\n\n", "<thin", "é🙂"]),
    max_size=10,
)


def begun(prompt_opened: bool) -> Beginning:
    return Beginning.OPENED if prompt_opened else Beginning.BEFORE


class Shown:
    """A text fed in pieces, as it is shown: the splitter and the edges together."""

    def __init__(self, beginning: Beginning = Beginning.BEFORE) -> None:
        self._splitter, self._edges = ReasoningSplitter(beginning), Edges(beginning)

    def feed(self, text: str) -> tuple[Piece, ...]:
        return joined(self._shown(part) for part in self._splitter.feed(text))

    def finish(self) -> tuple[Piece, ...]:
        rest = [self._shown(part) for part in self._splitter.finish()]
        return joined([*rest, Piece(Kind.CONTENT, self._edges.finish())])

    def _shown(self, part: Part) -> Piece:
        return Piece(part.kind, self._edges.show(part))

    @property
    def found(self) -> bool:
        return self._edges.found


def run(pieces: Sequence[str], *, prompt_opened: bool = False, beginning: Beginning | None = None) -> tuple[str, str]:
    """(reasoning, content) of a text fed in pieces."""
    shown = Shown(beginning or begun(prompt_opened))
    out = [piece for text in pieces for piece in shown.feed(text)] + list(shown.finish())
    return text_of(out, Kind.REASONING), text_of(out, Kind.CONTENT)


def by_the_rule(text: str, prompt_opened: bool) -> tuple[str, str]:
    """(reasoning, content) of a text that is there whole, as the contract words it."""
    before = ""
    if prompt_opened:
        again = text.lstrip()
        text = again.removeprefix("<think>") if again.startswith("<think>") else text
    else:
        before, tag, text = text.partition("<think>")
        if not tag:
            return "", before
        before = before if before.strip() else ""
    thought, _tag, after = text.partition("</think>")
    return thought.strip(), before + (after.rstrip() if before else after.strip())


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
    shown = Shown(begun(prompt_opened))
    shown.feed(text)
    shown.finish()
    assert shown.found is found


@settings(deadline=None)
@given(tokens=parts, prompt_opened=st.booleans(), data=st.data())
def test_any_text_any_split(tokens: list[str], prompt_opened: bool, data: st.DataObject) -> None:
    text = "".join(tokens)
    places = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    edges = [0, *places, len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    expected = run(list(text), prompt_opened=prompt_opened)
    assert run(pieces, prompt_opened=prompt_opened) == expected == by_the_rule(text, prompt_opened)
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
    shown = Shown()
    fed = [shown.feed(piece) for piece in ["<thi", "nk>", "so ", "it", " is</", "think>", "\n", "Yes", "!\n", "Bye"]]
    assert fed == [
        (),
        (),
        (Piece(Kind.REASONING, "so"),),
        (Piece(Kind.REASONING, " it"),),
        (Piece(Kind.REASONING, " is"),),
        (),
        (),
        (Piece(Kind.CONTENT, "Yes"),),
        (Piece(Kind.CONTENT, "!"),),
        (Piece(Kind.CONTENT, "\nBye"),),
    ]
    assert shown.finish() == ()


def test_both_kinds_in_one_piece_keep_their_order() -> None:
    assert Shown().feed("A <think>b</think> C") == (
        Piece(Kind.CONTENT, "A "),
        Piece(Kind.REASONING, "b"),
        Piece(Kind.CONTENT, " C"),
    )


def test_switched_off_nothing_is_split() -> None:
    text = " <think>a</think> b "
    assert run(list(text), beginning=Beginning.NEVER) == ("", text)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        (" it is </think>\n\nyes ", " it is", "yes"),
        ("  ", "", ""),
        ("<think> b</think>c", "<think> b", "c"),
    ],
)
def test_reasoning_that_goes_on_keeps_the_white_space_between_its_words(
    text: str, reasoning: str, content: str
) -> None:
    for pieces in cuts(text):
        assert run(pieces, beginning=Beginning.INSIDE) == (reasoning, content)


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
    assert prompt_beginning(prompt) is begun(opened)


def spans(pieces: Sequence[str], prompt_opened: bool) -> tuple[str, str]:
    """The text, and for each character of it "r" (aside from the answer) or "a"."""
    telling = ReasoningSplitter(begun(prompt_opened))
    parts = [part for piece in pieces for part in telling.feed(piece)] + telling.finish()
    return "".join(part.text for part in parts), "".join(("r" if p.aside else "a") * len(p.text) for p in parts)


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


# --- with the tokens that wrote it ------------------------------------------------------------------------------------


def written(chunks: Sequence[str], beginning: Beginning, **options: Any) -> list[list[tuple[str, str, list[str]]]]:
    """What each token of a choice lets out, and its end: (kind, text, tokens) of every piece."""
    tokenizer, ids = byte_chunks([chunk.encode() for chunk in chunks])
    choice = ChoiceText(tokenizer, beginning=beginning, **options)
    out = [choice.feed(TokenInfo(i)) for i in ids] + [choice.finish()]
    return [[(p.kind.value, p.text, [t.text for t in p.tokens]) for p in emitted.pieces] for emitted in out]


def test_each_token_goes_out_with_the_piece_it_completes() -> None:
    assert written(["<thi", "nk>so", " it", " is</think>\n", "Ye", "s", " <"], Beginning.BEFORE) == [
        [],
        [("reasoning", "so", ["<thi", "nk>so"])],
        [("reasoning", " it", [" it"])],
        # The white space behind the tag belongs to the answer, and is not shown.
        [("reasoning", " is", []), ("content", "", [" is</think>\n"])],
        [("content", "Ye", ["Ye"])],
        [("content", "s", ["s"])],
        [("content", " <", [" <"])],
        [],
    ]


def test_the_tokens_of_a_tag_are_the_reasonings() -> None:
    assert written(["a", "<think>", "</think>", "b"], Beginning.BEFORE) == [
        [("content", "a", ["a"])],
        [("reasoning", "", ["<think>"])],
        [("reasoning", "", ["</think>"])],
        [("content", "b", ["b"])],
        [],
    ]


@pytest.mark.parametrize(
    ("chunks", "beginning", "held"),
    [
        (["a", " <thi"], Beginning.BEFORE, [("content", "<thi", [" <thi"])]),
        (["\n"], Beginning.BEFORE, [("content", "\n", ["\n"])]),
        (["a", " </thin"], Beginning.OPENED, [("reasoning", " </thin", [" </thin"])]),
        (["\n<thi"], Beginning.OPENED, [("reasoning", "<thi", ["\n<thi"])]),
        (["a<think>b ", "</"], Beginning.BEFORE, [("reasoning", " </", ["</"])]),
    ],
)
def test_what_is_held_comes_at_the_end(
    chunks: list[str], beginning: Beginning, held: list[tuple[str, str, list[str]]]
) -> None:
    assert written(chunks, beginning)[-1] == held


def test_with_the_last_token_all_the_rest_comes() -> None:
    tokenizer, ids = byte_chunks([b"ab", b"c <th"])
    choice = ChoiceText(tokenizer, beginning=Beginning.BEFORE)
    assert [piece.text for piece in choice.feed(TokenInfo(ids[0])).pieces] == ["ab"]
    assert [piece.text for piece in choice.feed(TokenInfo(ids[1]), last=True).pieces] == ["c <th"]


def test_a_stop_that_cuts_a_tag_leaves_no_evidence_of_it() -> None:
    (first, _end) = written(["\n<think>no"], Beginning.BEFORE, stops=["<think>"])
    assert first == [("content", "\n", ["\n<think>no"])]


TEXTS = [
    ("<think>why</think>because", Beginning.BEFORE),
    ("Hm. <think> why </think> So. ", Beginning.BEFORE),
    ("\n<think>never closed </thin", Beginning.BEFORE),
    ("a < b and <th", Beginning.BEFORE),
    ("why\n</think>\n\nbecause \n", Beginning.OPENED),
    ("<think>x</think>y", Beginning.NEVER),
    ("naïve 東京</think>🙂", Beginning.OPENED),
]


@pytest.mark.parametrize(("text", "beginning"), TEXTS)
def test_every_split_into_tokens_gives_the_same_text_and_loses_no_token(text: str, beginning: Beginning) -> None:
    whole = ("", text) if beginning is Beginning.NEVER else by_the_rule(text, beginning is Beginning.OPENED)
    raw = text.encode()
    for cut in range(1, len(raw)):
        for other in (cut, len(raw)):
            chunks = [chunk for chunk in (raw[:cut], raw[cut:other], raw[other:]) if chunk]
            tokenizer, ids = byte_chunks(chunks)
            choice = ChoiceText(tokenizer, beginning=beginning)
            pieces = [piece for i in ids for piece in choice.feed(TokenInfo(i)).pieces] + list(choice.finish().pieces)
            assert (text_of(pieces, Kind.REASONING), text_of(pieces, Kind.CONTENT)) == whole, chunks
            assert [token.token_id for piece in pieces for token in piece.tokens] == ids


@settings(deadline=None)
@given(
    tokens=parts, prompt_opened=st.booleans(), stops=st.lists(st.sampled_from(["a", "<", " ", "b c", "\n"]), max_size=2)
)
def test_stops_cut_the_answer_wherever_the_text_is_cut(
    tokens: list[str], prompt_opened: bool, stops: list[str]
) -> None:
    text = "".join(tokens)

    def ended(ids: Sequence[int]) -> tuple[str, str, bool]:
        choice = ChoiceText(BYTE_LEVEL, stops, beginning=begun(prompt_opened))
        pieces: list[Piece] = []
        for place, token in enumerate(ids):
            pieces += choice.feed(TokenInfo(token), last=place == len(ids) - 1).pieces
        return text_of(pieces, Kind.REASONING), text_of(pieces, Kind.CONTENT), choice.reasoned

    by_byte = [BYTE_LEVEL.encode(letter, False) for letter in text]
    reasoning, content, reasoned = ended([token for ids in by_byte for token in ids])
    assert ended(BYTE_LEVEL.encode(text, False)) == (reasoning, content, reasoned)
    assert not any(stop in content for stop in stops)
