"""Grammars and regular expressions as forms of an answer: what is read, what is refused, and that nothing is narrowed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from engine.generation.constraints.ebnf import read_ebnf
from engine.generation.constraints.lark import read_lark
from engine.generation.constraints.texts import GrammarCheck, RegexCheck, TextCheck, whole_text
from engine.generation.errors import ConstrainedOutputInvalid, ResponseFormatUnsupported
from engine.generation.response_format import ResponseFormat, Syntax


def fits(check: TextCheck, text: str) -> bool:
    try:
        check.check(text)
    except ConstrainedOutputInvalid:
        return False
    return True


def lark(text: str) -> GrammarCheck:
    return GrammarCheck(read_lark(text).as_lark())


def ebnf(text: str) -> GrammarCheck:
    return GrammarCheck(read_ebnf(text).as_lark())


@pytest.mark.parametrize(
    ("read", "grammar", "right", "wrong"),
    [
        (lark, 'start: "hi"i " " NAME "!"?\nNAME: /[a-z]+/i', ["HI bob", "hi Al!"], ["hi", "hey al", "hi al!!"]),
        (
            lark,
            '%llguidance {}\n// sums\n?start: sum\n!sum: sum "+" INT -> more\n    | INT\n'
            "%import common (INT, WS)\n%ignore WS\n",
            ["1", "1 + 2", "1+2+33"],
            ["", "+", "1+"],
        ),
        (lark, 'start: ["a"] "b"~2..3 ("c".."e")', ["bbc", "abbbe"], ["abc", "bbf", "bbbbc"]),
        (lark, 'start: ("a"\n | "b"){2}\n\n  | "z"+ "y"{0,1}\n', ["ab", "z", "zzy"], ["a", "", "zyy"]),
        (lark, 'start: /a\\/b/ "\\x41\\u00e9\\n\\""', ['a/bAé\n"'], ["a/b"]),
        (lark, "start: /./s /./", ["\na"], ["\n\n"]),
        (ebnf, 'root ::= "ab" "c" | [a-z] [a-z] "d"', ["abc", "abd", "zzd"], ["ab", "abe"]),
        (
            ebnf,
            '# sums\nexpr ::= term ("+" term)*\nterm ::= [0-9]+\n  | "(" expr ")" /* deep */\n',
            ["1", "1+(22+3)", "((4))"],
            ["", "1+", "(1"],
        ),
        (
            ebnf,
            "root ::= item{2,3} last?\nitem ::= 'é' | \"x\"\nlast ::= [^\\n\\]a-c] .",
            ["xé", "xxxz\n"],
            ["x", "xxa!"],
        ),
        (ebnf, 'a-b ::= "x" | ', ["x", ""], ["xx"]),
        (ebnf, 'first ::= "f" root ::= "r" first', ["rf"], ["f"]),
        (ebnf, "root ::= [\\-a]{1,} [--/] [\\x41-\\u0043]", ["-a-A", "a.C"], ["b-A"]),
    ],
)
def test_what_is_read(read: Callable[[str], TextCheck], grammar: str, right: list[str], wrong: list[str]) -> None:
    check = read(grammar)
    assert [text for text in right if not fits(check, text)] == []
    assert [text for text in wrong if fits(check, text)] == []


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ("start: <|im_end|>", "'<'"),
        ('start: %json {"type": "string"}', "'%json'"),
        ('start: "a"\n%declare X', "%declare"),
        ('start: A\nA.2: "x"', "priorities"),
        ('start[max_tokens=3]: "a"', "attributes"),
        ("start{x}: x", "templates"),
        ("%import common.INT -> X\nstart: X", "own name"),
        ("%import python.NAME\nstart: NAME", "common"),
        ("start: x", "no rule named 'x'"),
        ('foo: "a"', "'start'"),
        ("", "'start'"),
        ('start: "a" start', "finite"),
        ('start: "x" | b\nb: c "y"\nc: b', "'b'"),
        ("start: /(?=a)b/", "look-around"),
        ("start: /a/x", "flag 'x'"),
        ('start: "a', "cannot be read"),
        ('start: "a"\nstart: "b"', "two rules"),
        ('start: "b".."a"', "range"),
        ('start: "a"~10001', "10000"),
        ('start: "a"~3..2', "least first"),
        ('start: "a"{99999999999999999999}', "10000"),
        ('start: "\\q"', "escape"),
        ('start: "\\ud800"', "no character"),
        ('start: "\ud800"', "surrogate"),
        ("start: " + "(" * 51 + '"a"' + ")" * 51, "deep"),
        ('start: ("a"', "')' is expected"),
    ],
)
def test_what_lark_is_refused(grammar: str, words: str) -> None:
    with pytest.raises(ResponseFormatUnsupported) as caught:
        read_lark(grammar)
    assert words in caught.value.message
    assert caught.value.param == "response_format"


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ("a ::= b - c", "exceptions"),
        ("a = b ;", "'::='"),
        ('a ::= "b" ;', "end by themselves"),
        ("a ::= #x41", "character codes"),
        ("a ::= b", "no rule named 'b'"),
        ('a ::= "x" a', "finite"),
        ("", "no rule"),
        ("a ::= [z-a]", "back to"),
        ("a ::= []", "no character"),
        ('a ::= "x" ]', "cannot be read"),
        ('a ::= "x" a ::= "y"', "two rules"),
        ("a ::= *", "a part is expected"),
        ('a ::= "\\q"', "escape"),
        ("a ::= " + "(" * 51 + '"a"' + ")" * 51, "deep"),
    ],
)
def test_what_ebnf_is_refused(grammar: str, words: str) -> None:
    with pytest.raises(ResponseFormatUnsupported) as caught:
        read_ebnf(grammar)
    assert words in caught.value.message


@given(st.lists(st.sampled_from(["a", "ab", "b", "ba", "aab", "[ab]", "[a]"]), min_size=2, max_size=4))
def test_a_word_hides_no_beginning_of_another(parts: list[str]) -> None:
    """Where one alternative begins as another does, both stay possible: each text is known by an expression, too."""
    first, second = " ".join(map(_quoted, parts)), " ".join(map(_quoted, reversed(parts)))
    check = ebnf(f"root ::= ({first} | {second} | [ab]{{2}})+")
    known = re.compile(f"(?:{''.join(parts)}|{''.join(reversed(parts))}|[ab]{{2}})+")
    for length in range(7):
        for letters in itertools.product("ab", repeat=length):
            text = "".join(letters)
            assert fits(check, text) == (known.fullmatch(text) is not None), text


def _quoted(part: str) -> str:
    return part if part.startswith("[") else f'"{part}"'


REGEXES: list[tuple[str, list[str], list[str]]] = [
    (r"\d{3}-\d{2}", ["123-45"], ["123-4", "x123-45"]),
    (r"^yes|no$", ["yes", "no"], ["yes!", "yesno"]),
    (r"a\$", ["a$"], ["a"]),
    (r"[$]", ["$"], [""]),
    ("", [""], ["a"]),
    ("(?i)caf\u00e9", ["CAFÉ"], ["cafe"]),
    (r"\w+\s\p{Greek}", ["é α"], ["é a"]),
    (".", ["é", "\r"], ["\n", "ab"]),
    ("(?s).", ["\n"], [""]),
    ("[^a]", ["\n"], ["a"]),
    (r"\Aab\z", ["ab"], ["ab\n"]),
    ("a*?b", ["aab"], ["aa"]),
    ("a/b", ["a/b"], ["ab"]),
]


@pytest.mark.parametrize(("regex", "right", "wrong"), REGEXES)
def test_both_engines_read_an_expression_alike(regex: str, right: list[str], wrong: list[str]) -> None:
    told = whole_text(regex)
    matcher = LLMatcher(LLTokenizer("byte"), LLMatcher.grammar_from_regex(told), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    for text, expected in [*((text, True) for text in right), *((text, False) for text in wrong)]:
        followed = matcher.deep_copy()
        accepted = followed.consume_tokens(list(text.encode())) and followed.is_accepting()
        assert (accepted, fits(RegexCheck(told), text)) == (expected, expected), text


@pytest.mark.parametrize(
    "regex", ["(", "a**b(", r"(a)\1", "(?=a)b", "(?<!a)b", "[z-a]", "a{3,2}", r"(?-u)\xff", "(?x)a # b", "\ud800"]
)
def test_what_expression_is_refused(regex: str) -> None:
    with pytest.raises(ResponseFormatUnsupported) as caught:
        ResponseFormat(regex=regex)
    assert caught.value.param == "response_format"


@pytest.mark.parametrize("regex", ["(a{1000}){1000}", r"(\w{100}){100}", r"(?:\p{L}{900}|x){9}", "((a{99}){99}){99}"])
def test_huge_expressions_are_refused_before_anything_compiles(regex: str) -> None:
    with pytest.raises(ResponseFormatUnsupported, match="size limit"):
        ResponseFormat(regex=regex)


def test_bounds_and_headers() -> None:
    assert ResponseFormat(regex="a" * 4096).header == "regex"
    with pytest.raises(ResponseFormatUnsupported, match="4096"):
        ResponseFormat(regex="a" * 4097)
    text = 'start: "a"\n'
    assert ResponseFormat(grammar=text + " " * (8192 - len(text))).header == 'grammar;syntax="lark"'
    assert ResponseFormat(grammar='a ::= "a"', syntax=Syntax.EBNF).header == 'grammar;syntax="ebnf"'
    with pytest.raises(ResponseFormatUnsupported, match="8192"):
        ResponseFormat(grammar=text + " " * (8193 - len(text)))
    # Names in the cache: an expression is no grammar, and neither is JSON.
    made = [ResponseFormat(regex="true"), ResponseFormat(grammar='start: "true"'), ResponseFormat(True, "x")]
    assert len({each.text for each in made}) == 3
