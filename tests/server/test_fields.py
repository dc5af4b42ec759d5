"""The field policy: what is honoured, reported or refused, and in which order locations are named."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import FieldNotHonoured, UnusedFieldsRefused
from server.fields import Column, Use, judge, refuse_unused
from server.openai import fields
from server.openai.chat import Chat
from server.openai.completions import Completions
from server.openai.embeddings import EmbeddingsBody

CHAT, TEXT, VECTORS = fields.CHAT, fields.COMPLETIONS, fields.EMBEDDINGS
DECLARED = {
    CHAT.key: Chat.declared(),
    TEXT.key: Completions.declared(),
    VECTORS.key: frozenset(EmbeddingsBody.model_fields),
}


def locations(endpoint: Column, *unused: str, engine: str = "transformers", **body: Any) -> tuple[str, ...]:
    return judge(endpoint, body, DECLARED[endpoint.key], unused, model="tiny", engine=engine)


def refusal(endpoint: Column, **body: Any) -> FieldNotHonoured:
    with pytest.raises(FieldNotHonoured) as caught:
        locations(endpoint, **body)
    return caught.value


CALLS: list[tuple[str, Any]] = [
    ("functions", [{"name": "f"}]),
    ("function_call", {"name": "f"}),
    ("dimensions", 5),  # A071
    ("pooling", "last"),
    ("normalize", True),
    ("verbosity", "low"),
    ("web_search_options", {}),
    ("guided_choice", ["a"]),
    ("audio", {"voice": "x"}),
    ("modalities", ["text", "audio"]),
    ("prediction", {"type": "content", "content": "x"}),
    ("lora_adapter", "x"),
]


@pytest.mark.parametrize("endpoint", [CHAT, TEXT])
@pytest.mark.parametrize(("name", "value"), CALLS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CALLS)])
def test_what_would_change_the_text_and_cannot_is_refused(endpoint: Column, name: str, value: Any) -> None:
    error = refusal(endpoint, **{"model": "tiny", name: value})
    assert error.param == name
    assert "tiny" in error.message
    assert "transformers" in error.message


@pytest.mark.parametrize("name", ["suffix", "fim_mode"])
def test_a_chat_has_no_gap(name: str) -> None:
    assert refusal(CHAT, **{"model": "tiny", name: "psm"}).param == name
    assert locations(TEXT, **{name: "psm"}) == ()


@pytest.mark.parametrize(
    ("name", "value"), [("prompt", ["a"]), ("n", 2), ("logprobs", 0), ("echo", True), ("allowed_token_ids", [5])]
)
def test_what_does_not_go_with_a_gap(name: str, value: Any) -> None:
    refused = "suffix" if name == "allowed_token_ids" else name
    assert refusal(TEXT, **{"suffix": "x", "max_tokens": 2, name: value}).param == refused


def test_texts_are_repeated_and_conversations_are_not() -> None:
    assert locations(TEXT, echo=True) == ()
    assert refusal(CHAT, echo=True).param == "echo"
    assert refusal(TEXT, echo=True, allowed_token_ids=[5]).param == "allowed_token_ids"
    # With echo nothing is scored, so what scoring refuses is honoured.
    assert locations(TEXT, echo=True, max_tokens=1, logprobs=1, n=1, profile="p", min_tokens=1) == ()


@pytest.mark.parametrize("endpoint", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 1),
        ("logprobs", False),
        ("response_format", {"type": "text"}),  # A070
        ("response_format", {"type": "text", "json_schema": None}),
        ("tools", []),  # A062
        ("tool_choice", "auto"),
        ("tool_choice", "none"),
        ("functions", []),
        ("function_call", "none"),
        ("logit_bias", {}),  # A064
        ("pooling", "mean"),
        ("normalize", False),
        ("echo", False),
        ("modalities", ["text"]),
    ],
)
def test_neutral_values_ask_for_nothing(endpoint: Column, name: str, value: Any) -> None:
    assert locations(endpoint, **{name: value}) == ()


@pytest.mark.parametrize("endpoint", [CHAT, TEXT])
@pytest.mark.parametrize("name", sorted(fields.TABLE))
def test_null_asks_for_nothing_anywhere(endpoint: Column, name: str) -> None:
    assert locations(endpoint, **{name: None}) == ()  # A073


def test_null_under_an_unknown_name_asks_for_nothing() -> None:
    assert locations(CHAT, foo=None, messages=[{"role": "user", "content": "x", "name": None}]) == ()


@pytest.mark.parametrize(("name", "value"), [("echo", 0), ("normalize", 0), ("functions", {}), ("pooling", ["mean"])])
def test_neutral_values_keep_their_json_type(name: str, value: Any) -> None:
    assert refusal(CHAT, **{name: value}).param == name


def test_the_first_offender_is_the_param_and_the_others_are_listed() -> None:
    error = refusal(CHAT, dimensions=5, foo=1, functions=[{}])  # A076
    assert error.param == "dimensions"
    assert "'functions'" in error.message
    assert error.details == {"fields": ["dimensions", "functions"]}


@pytest.mark.parametrize(
    ("name", "value"),
    [("tools", [{"type": "function", "function": {"name": "f"}}]), ("tool_choice", "required")],
)
def test_only_a_chat_calls_anything(name: str, value: Any) -> None:
    assert locations(CHAT, **{name: value}) == ()
    assert refusal(TEXT, **{name: value}).param == name


def test_further_conversations_are_chats_and_come_as_a_whole() -> None:
    more = [[{"role": "user", "content": "x"}]]
    assert locations(CHAT, extra_messages=more) == ()
    assert refusal(CHAT, extra_messages=more, stream=True).param == "extra_messages"  # A116
    assert refusal(TEXT, extra_messages=more).param == "extra_messages"
    assert locations(CHAT, extra_messages=[], stream=True) == ()
    assert locations(TEXT, extra_messages=[]) == ()


def test_what_the_other_engine_does_otherwise() -> None:
    kwargs = {"chat_template_kwargs": {"a": 1}, "enable_thinking": True}
    assert locations(CHAT, **kwargs) == ()
    assert locations(CHAT, engine="llamacpp", **kwargs, user="x") == (
        "user",
        "chat_template_kwargs",
        "enable_thinking",
    )
    assert locations(CHAT, engine="llamacpp", chat_template_kwargs="") == ()
    assert locations(VECTORS, pooling="cls") == ()
    assert locations(VECTORS, engine="llamacpp", pooling="mean") == ()
    with pytest.raises(FieldNotHonoured, match=r"'pooling' .* \(llamacpp\)"):  # A245
        locations(VECTORS, engine="llamacpp", pooling="cls")


def test_top_logprobs_belongs_to_chat() -> None:
    assert refusal(TEXT, top_logprobs=2).param == "top_logprobs"  # A068
    assert locations(CHAT, top_logprobs=2) == ()


def test_best_of_is_refused_on_streams() -> None:
    assert refusal(TEXT, best_of=2, stream=True).param == "best_of"
    assert locations(TEXT, best_of=1, stream=True) == ()
    assert locations(TEXT, best_of=2, stream=False) == ()


STEERING_FIELDS: list[tuple[str, Any]] = [
    ("profile", "p"),
    ("steering", {"features": []}),
    ("steering", {"features": [{"index": 1, "strength": 2}]}),
    ("steering_intensity", 0),
]


@pytest.mark.parametrize(("name", "value"), STEERING_FIELDS, ids=str)
def test_steering_is_honoured_on_text_and_refused_on_scoring(name: str, value: Any) -> None:
    for endpoint, asked in ((CHAT, True), (TEXT, 0), (TEXT, 5)):
        assert locations(endpoint, **{name: value}) == ()
        for cap in ({"max_tokens": 1}, {"max_completion_tokens": 1}, {"max_tokens": 1.0, "n": 1, "stream": False}):
            error = refusal(endpoint, **{name: value, "logprobs": asked, **cap})  # A136
            assert error.param == name
            assert error.remedy is not None
            assert "never steered" in error.remedy
            assert locations(endpoint, **{name: None, "logprobs": asked, **cap}) == ()
        assert refusal(endpoint, **{name: value, "allowed_token_ids": [1], "max_tokens": 1}).param == name
        for text in ({"max_tokens": 2}, {}, {"max_tokens": 1, "n": 2}, {"max_tokens": 1, "stream": True}):
            assert locations(endpoint, **{name: value, "logprobs": asked, **text}) == ()
    for unasked in (False, None):
        assert locations(CHAT, **{name: value, "logprobs": unasked, "max_tokens": 1}) == ()


FORMS: list[dict[str, Any]] = [
    {"type": "json_object"},
    {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
]


@pytest.mark.parametrize("form", FORMS, ids=["object", "schema"])
def test_a_form_is_honoured_on_chat_and_refused_elsewhere(form: dict[str, Any]) -> None:
    assert locations(CHAT, response_format=form) == ()
    for endpoint, more in ((TEXT, {}), (VECTORS, {}), (CHAT, {"logprobs": True, "max_tokens": 1})):
        assert refusal(endpoint, **{"response_format": form, **more}).param == "response_format"


@pytest.mark.parametrize("endpoint", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("name", "value", "idle"),
    [
        ("n", 2, 1),
        ("stream", True, False),
        ("best_of", 2, 1),
        ("min_tokens", 1, 0),
        ("logit_bias", {"5": 1}, {}),  # with allowed_token_ids; see below
    ],
)
def test_what_is_about_writing_is_refused_on_scoring(endpoint: Column, name: str, value: Any, idle: Any) -> None:
    asked = {"allowed_token_ids": [1, 2], "max_tokens": 1}
    assert refusal(endpoint, **{**asked, name: value}).param == name
    assert locations(endpoint, **{**asked, name: idle}) == ()
    assert locations(endpoint, **{name: value}) == ()


@pytest.mark.parametrize("endpoint", [CHAT, TEXT])
def test_a_bias_goes_with_scoring_where_it_chooses(endpoint: Column) -> None:
    assert locations(endpoint, logprobs=True if endpoint is CHAT else 2, max_tokens=1, logit_bias={"5": 100}) == ()


def test_fields_of_embeddings() -> None:
    body = {"model": "m", "input": "x", "encoding_format": "float", "pooling": "last", "normalize": True}
    assert locations(VECTORS, **body) == ()
    assert locations(VECTORS, user="u", temperature=1, messages=[], stream=True) == (
        "user",
        "temperature",
        "messages",
        "stream",
    )
    for name, value in (
        ("dimensions", 5),  # A071
        ("steering", {"features": []}),
        ("profile", "p"),
        ("steering_intensity", 0),
        ("seed", 1),
        ("n", 2),
        ("logprobs", 0),
        ("top_logprobs", 1),
        ("allowed_token_ids", [1]),
        ("logit_bias", {"1": 1}),
        ("tools", [{}]),
        ("max_completion_tokens", 1),
        ("return_sae_activations", {}),
    ):
        assert refusal(VECTORS, **{name: value}).param == name
        assert locations(VECTORS, **{name: None}) == ()
    assert locations(VECTORS, n=1, logprobs=False, logit_bias={}, tools=[], response_format={"type": "text"}) == ()


def test_activations_are_honoured_on_scoring_too() -> None:
    wanted = {"top_k": 1, "positions": "last"}
    assert locations(CHAT, return_sae_activations=wanted) == ()
    assert locations(CHAT, return_sae_activations=wanted, logprobs=True, max_tokens=1) == ()


def test_a_field_the_table_honours_but_no_schema_reads_is_refused() -> None:
    with pytest.raises(FieldNotHonoured) as caught:
        judge(CHAT, {"seed": 7}, frozenset({"model"}), (), model="tiny", engine="transformers")
    assert caught.value.param == "seed"


@pytest.mark.parametrize("endpoint", [CHAT, TEXT, VECTORS])
def test_every_honoured_field_is_read_by_the_schema_and_every_read_field_has_a_row(endpoint: Column) -> None:
    honoured = {name for name, rule in endpoint.rules.items() if rule.use is Use.HONOURED}
    assert honoured <= DECLARED[endpoint.key]
    assert DECLARED[endpoint.key] <= set(fields.TABLE)


@pytest.mark.parametrize(
    "name",
    [
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "foo",
    ],
)
def test_what_is_not_about_the_text_is_reported(name: str) -> None:
    assert locations(CHAT, **{name: "x"}) == (name,)  # A041, A046


def test_fields_of_the_other_endpoint_are_reported() -> None:
    assert locations(CHAT, prompt="x", add_special_tokens=False) == ("prompt", "add_special_tokens")
    assert locations(TEXT, messages=[], chat_template_kwargs={"a": 1}, enable_thinking=True) == (
        "messages",
        "chat_template_kwargs",
        "enable_thinking",
    )


def test_locations_come_in_order_each_once() -> None:
    body = {
        "zeta": 1,
        "model": "tiny",
        "messages": [
            {"role": "user", "content": "x", "name": "n", "weight": 1},
            {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {}}]},
            "not a message",
        ],
        "stream_options": {"include_usage": True, "include_obfuscation": False, "other": None},
        "alpha": 1,
    }
    assert locations(CHAT, "enable_thinking", **body) == (
        "zeta",
        "stream_options.include_obfuscation",  # A047
        "alpha",
        "enable_thinking",
        "messages[0].name",
        "messages[0].weight",
        "messages[1].content[0].cache_control",
    )


def test_an_option_block_without_use_is_named_whole() -> None:
    assert locations(CHAT, "stream_options", stream_options={"include_usage": True, "x": 1}) == ("stream_options",)


def test_keys_inside_extra_messages_are_located() -> None:
    body = {"extra_messages": [[{"role": "user"}, {"role": "user", "weight": 1}], "x"]}
    assert locations(CHAT, **body) == ("extra_messages[0][1].weight",)  # A043


def test_strict_names_every_location_and_the_first_as_param() -> None:
    with pytest.raises(UnusedFieldsRefused) as caught:  # A049
        refuse_unused(("foo", "messages[0].name"))
    assert caught.value.param == "foo"
    assert "foo" in caught.value.message
    assert "messages[0].name" in caught.value.message
    refuse_unused(())
