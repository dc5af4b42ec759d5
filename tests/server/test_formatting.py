"""The shapes of logprobs, usage and fingerprints, on values written by hand."""

from __future__ import annotations

import math
import re

from engine.generation.request import Alternative, TokenInfo, Usage
from server import sse
from server.openai.formatting import chat_logprobs, new_id, text_logprobs, usage_json

SMILE = "🙂".encode()


def _token(token_id: int, raw: bytes, logprob: float, *top: Alternative, offset: int = 0) -> TokenInfo:
    return TokenInfo(token_id, raw.decode("utf-8", "replace"), raw, logprob, top, offset)


def _other(token_id: int, raw: bytes, logprob: float) -> Alternative:
    return Alternative(token_id, raw.decode("utf-8", "replace"), raw, logprob)


TOKENS = (
    _token(11, b" true", -0.25, _other(11, b" true", -0.25), _other(12, b" false", -1.5), offset=4),
    _token(13, SMILE[:2], -3.0, _other(14, b"a", -0.5), _other(15, b"b", -1.0), offset=9),
)


def test_chat_logprobs() -> None:
    assert chat_logprobs(TOKENS, as_ids=False) == {
        "content": [
            {
                "token": " true",
                "logprob": -0.25,
                "bytes": [32, 116, 114, 117, 101],
                "top_logprobs": [
                    {"token": " true", "logprob": -0.25, "bytes": [32, 116, 114, 117, 101]},
                    {"token": " false", "logprob": -1.5, "bytes": [32, 102, 97, 108, 115, 101]},
                ],
            },
            {
                "token": "bytes:\\xf0\\x9f",
                "logprob": -3.0,
                "bytes": [240, 159],
                "top_logprobs": [
                    {"token": "a", "logprob": -0.5, "bytes": [97]},
                    {"token": "b", "logprob": -1.0, "bytes": [98]},
                ],
            },
        ]
    }


def test_text_logprobs_list_the_chosen_token_too() -> None:
    assert text_logprobs(TOKENS, as_ids=False) == {
        "tokens": [" true", "bytes:\\xf0\\x9f"],
        "token_logprobs": [-0.25, -3.0],
        "top_logprobs": [{" true": -0.25, " false": -1.5}, {"a": -0.5, "b": -1.0, "bytes:\\xf0\\x9f": -3.0}],
        "text_offset": [4, 9],
    }


def test_the_first_token_of_a_prompt_has_no_figures() -> None:
    out = text_logprobs([TokenInfo(5, "a", b"a"), *TOKENS[:1]], as_ids=False)
    assert out["token_logprobs"] == [None, -0.25]
    assert out["top_logprobs"][0] is None
    assert (out["tokens"], out["text_offset"]) == (["a", " true"], [0, 4])


def test_tokens_as_ids_change_the_name_only() -> None:
    out = chat_logprobs(TOKENS[:1], as_ids=True)["content"][0]
    assert out["token"] == "token_id:11"
    assert out["bytes"] == [32, 116, 114, 117, 101]  # A145
    assert [entry["token"] for entry in out["top_logprobs"]] == ["token_id:11", "token_id:12"]
    assert text_logprobs(TOKENS[:1], as_ids=True)["top_logprobs"] == [
        {"token_id:11": -0.25, "token_id:12": -1.5}
    ]  # A130


def test_tokens_that_read_the_same_share_the_likelier_entry() -> None:
    token = _token(1, b"a", -2.0, _other(2, b"a", -1.0), _other(1, b"a", -2.0))
    assert text_logprobs([token], as_ids=False)["top_logprobs"] == [{"a": -1.0}]


def test_a_probability_of_zero_is_a_number_json_can_hold() -> None:
    out = chat_logprobs([_token(1, b"a", -math.inf)], as_ids=False)["content"][0]
    assert out["logprob"] == -9999.0
    assert out["top_logprobs"] == []


def test_usage() -> None:
    assert usage_json(Usage(3, 4)) == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert usage_json(Usage(3, 4, 2))["prompt_tokens_details"] == {"cached_tokens": 2}


def test_ids() -> None:
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{24}", new_id("chatcmpl"))
    assert new_id("cmpl") != new_id("cmpl")


def test_half_a_surrogate_pair_is_written_as_json_escapes_it() -> None:
    """A file's name that is no UTF-8, as Python reads it."""
    assert sse.dump({"path": "m\udcff"}) == b'{"path":"m\\udcff"}'
