"""The request schemas: what passes, what is refused, and which field a refusal names."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import FieldNotHonoured, InvalidParameter
from engine.generation.errors import ResponseFormatUnsupported
from engine.generation.request import ChatInput, Message, TextInput
from engine.generation.tools.values import PastCall
from engine.monitor.activation_spec import ActivationSpec, PositionRange, ReadPoint
from engine.monitor.errors import SaeActivationsRefused
from engine.steering.dial import DialWord
from engine.steering.inline import InlineSteering
from engine.steering.request import SteeringRequest
from server.fields import judge
from server.openai.chat import Chat
from server.openai.completions import Completions
from server.openai.embeddings import EmbeddingsBody
from server.openai.embeddings import parse as parse_embeddings
from server.openai.schema import Parsed, parse_chat, parse_completion

NAN, INF = float("nan"), float("inf")


def chat(**changes: Any) -> Parsed:
    return parse_chat({"model": "m", "messages": [{"role": "user", "content": "hi"}], **changes})


def text(**changes: Any) -> Parsed:
    return parse_completion({"model": "m", "prompt": "hi", **changes})


SHARED: list[tuple[str, Any]] = [
    ("temperature", 2.1),  # A023
    ("temperature", -0.1),
    ("temperature", NAN),
    ("temperature", INF),
    ("temperature", True),
    ("temperature", "1"),
    ("temperature", []),
    ("temperature", 10**400),
    ("top_p", 1.5),  # A025
    ("top_p", -0.5),
    ("top_p", NAN),
    ("top_k", -2),
    ("top_k", 1.5),
    ("top_k", True),
    ("min_p", 1.1),
    ("min_p", -0.1),
    ("frequency_penalty", 2.5),
    ("frequency_penalty", -2.5),
    ("presence_penalty", 3),
    ("presence_penalty", False),
    ("repetition_penalty", 0),
    ("repetition_penalty", 2.1),
    ("repeat_penalty", 0),
    ("repeat_penalty", "1"),
    ("n", 0),  # A029
    ("n", 129),
    ("n", True),
    ("n", 1.5),
    ("best_of", 0),
    ("best_of", 21),
    ("max_tokens", 0),  # A026
    ("max_tokens", -5),
    ("max_tokens", -2),
    ("max_completion_tokens", -2),
    ("max_tokens", -1.5),
    ("max_tokens", "8"),
    ("max_tokens", 1.5),
    ("max_tokens", True),
    ("max_tokens", 10**30),
    ("max_completion_tokens", 0),
    ("min_tokens", -1),
    ("ignore_eos", 1),
    ("ignore_eos", "true"),
    ("stream", 1),
    ("stream", "true"),
    ("seed", True),  # A037
    ("seed", 2**63),
    ("seed", -(2**63) - 1),
    ("seed", 10**400),
    ("seed", 1.5),  # A038
    ("seed", "7"),
    ("stop", 5),
    ("stop", ""),  # A028
    ("stop", ["a", ""]),  # A028
    ("stop", ["a"] * 17),  # A028
    ("stop", {"a": 1}),
    ("stop", [None]),
    ("logit_bias", {"abc": 1}),  # A064
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"1.5": 1}),
    ("logit_bias", {"5": 101}),  # A064
    ("logit_bias", {"5": -101}),
    ("logit_bias", {"5": True}),
    ("logit_bias", {"5": NAN}),
    ("logit_bias", {"5": "1"}),
    ("logit_bias", [1]),
    ("logit_bias", {str(i): 1 for i in range(1025)}),  # A064
    ("allowed_token_ids", []),  # A128
    ("allowed_token_ids", list(range(1025))),  # A128
    ("return_tokens_as_token_ids", 1),
    ("steering_intensity", True),  # A040
    ("steering_intensity", "loud"),  # A040
    ("steering_intensity", 2.01),  # A040
    ("steering_intensity", "nan"),
    ("profile", 5),
    ("profile", []),
    ("steering", []),
    ("steering", "x"),
    ("return_sae_activations", "all"),
    ("return_sae_activations", []),
    ("stream_options", []),
    ("model", 5),
    ("model", None),
]


@pytest.mark.parametrize("parse", [chat, text], ids=["chat", "text"])
@pytest.mark.parametrize(("name", "value"), SHARED, ids=[f"{n}-{i}" for i, (n, _) in enumerate(SHARED)])
def test_bad_values_are_refused_naming_the_field(parse: Any, name: str, value: Any) -> None:
    with pytest.raises(InvalidParameter) as caught:
        parse(**{name: value})
    assert caught.value.param == name
    assert caught.value.message.startswith(f"Invalid value for '{name}': ")


@pytest.mark.parametrize(
    ("parse", "param", "body"),
    [
        (chat, "messages", {"messages": None}),
        (chat, "messages", {"messages": "hi"}),
        (chat, "messages", {"messages": {}}),
        (chat, "messages.0", {"messages": ["hi"]}),
        (chat, "messages.0.role", {"messages": [{"content": "x"}]}),
        (chat, "messages.0.role", {"messages": [{"role": "robot", "content": "x"}]}),
        (chat, "messages.1.role", {"messages": [{"role": "user"}, {"role": 5}]}),
        (chat, "messages.0.content", {"messages": [{"role": "user", "content": 5}]}),
        (chat, "messages.0.content", {"messages": [{"role": "user", "content": {"type": "text"}}]}),
        (chat, "messages.0.content.0", {"messages": [{"role": "user", "content": ["x"]}]}),
        (
            chat,
            "messages.0.content.1.type",
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "text": ""}]}
                ]
            },
        ),
        (chat, "messages.0.content.0.text", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
        (chat, "extra_messages.0.1.role", {"extra_messages": [[{"role": "user"}, {"role": "x"}]]}),
        (chat, "extra_messages.0", {"extra_messages": [5]}),
        (chat, "logprobs", {"logprobs": 5}),
        (chat, "top_logprobs", {"logprobs": True, "top_logprobs": 21}),
        (chat, "top_logprobs", {"top_logprobs": 2}),  # A143
        (chat, "top_logprobs", {"logprobs": False, "top_logprobs": 2}),
        (chat, "chat_template_kwargs", {"chat_template_kwargs": 5}),
        (chat, "chat_template_kwargs", {"chat_template_kwargs": "{"}),
        (chat, "chat_template_kwargs", {"chat_template_kwargs": "[1]"}),
        (chat, "chat_template_kwargs", {"chat_template_kwargs": [5]}),
        (chat, "chat_template_kwargs", {"chat_template_kwargs": [[{}]]}),
        (chat, "enable_thinking", {"enable_thinking": "yes"}),
        (chat, "response_format.type", {"response_format": {"type": "xml"}}),
        (chat, "response_format.extra", {"response_format": {"type": "text", "extra": 1}}),
        (chat, "response_format", {"response_format": {"type": "json_schema"}}),
        (chat, "response_format", {"response_format": {"type": "text", "json_schema": {"name": "n", "schema": {}}}}),
        (chat, "response_format", {"response_format": "text"}),
        (
            chat,
            "response_format.json_schema.name",
            {"response_format": {"type": "json_schema", "json_schema": {"name": "bad name", "schema": {}}}},
        ),  # A164
        (
            chat,
            "response_format.json_schema.name",
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n" * 65, "schema": {}}}},
        ),  # A164
        (
            chat,
            "response_format.json_schema.schema",
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
        ),
        (chat, "stream_options.include_usage", {"stream_options": {"include_usage": 1}}),
        (chat, "allowed_token_ids.0", {"allowed_token_ids": [-1]}),  # A128
        (chat, "steering.features", {"steering": {}}),
        (chat, "steering.features", {"steering": {"features": {"1": 2}}}),
        (chat, "steering.extra", {"steering": {"features": [], "extra": 1}}),
        (chat, "steering.sae_id", {"steering": {"features": [], "sae_id": "a"}}),
        (chat, "steering.sae_id", {"steering": {"features": [{"index": 1, "strength": 1}], "sae_id": 5}}),
        (chat, "steering.features.0", {"steering": {"features": [5]}}),
        (chat, "steering.features.0.index", {"steering": {"features": [{"index": -1, "strength": 1}]}}),
        (text, "steering.features.0.index", {"steering": {"features": [{"index": True, "strength": 1}]}}),
        (text, "steering.features.0.strength", {"steering": {"features": [{"index": 1, "strength": True}]}}),  # A218
        (text, "steering.features.0.strength", {"steering": {"features": [{"index": 1, "strength": NAN}]}}),  # A218
        (text, "steering.features.0.strength", {"steering": {"features": [{"index": 1, "strength": "1"}]}}),
        (
            text,
            "steering.features.1.index",
            {"steering": {"features": [{"index": 1, "strength": 1}, {"index": 1, "strength": 1}]}},
        ),  # A218
        (chat, "steering", {"steering": {"features": []}, "profile": "p"}),  # A217
        (text, "steering", {"steering": {"features": []}, "steering_intensity": 0}),  # A217
        (text, "prompt", {"prompt": None}),
        (text, "prompt", {"prompt": 5}),
        (text, "prompt", {"prompt": []}),
        (text, "prompt", {"prompt": [1, "a"]}),
        (text, "prompt", {"prompt": [1, [2]]}),
        (text, "prompt", {"prompt": [1, None]}),
        (text, "prompt", {"prompt": [1, 2.5]}),
        (text, "prompt", {"prompt": [True]}),
        (text, "prompt", {"prompt": [[1], "a"]}),
        (text, "prompt", {"prompt": [[1], 2]}),
        (text, "prompt", {"prompt": [[1], [[2]]]}),
        (text, "prompt.1", {"prompt": ["a", [1]]}),
        (text, "echo", {"echo": 1}),
        (text, "max_tokens", {"max_tokens": 0}),
        (text, "max_tokens", {"max_tokens": 0, "echo": False}),
        (text, "max_tokens", {"max_tokens": -2, "echo": True}),
        (chat, "max_tokens", {"max_tokens": 0}),
        (text, "prompt.1", {"prompt": ["a", 5]}),
        (text, "logprobs", {"logprobs": 21}),  # A121
        (text, "logprobs", {"logprobs": True}),
        (text, "logprobs", {"logprobs": -1}),
        (text, "add_special_tokens", {"add_special_tokens": 1}),
        (text, "best_of", {"n": 3, "best_of": 2}),
        (text, "min_tokens", {"min_tokens": 9, "max_tokens": 8}),
    ],
)
def test_bad_shapes_are_refused_naming_the_place(parse: Any, param: str, body: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter) as caught:
        parse(**body)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("param", "wanted"),
    [
        ("return_sae_activations.top_k", {"positions": "all"}),
        ("return_sae_activations.top_k", {"positions": "all", "top_k": 0}),
        ("return_sae_activations.top_k", {"positions": "all", "top_k": True}),
        ("return_sae_activations.positions", {"top_k": 1}),
        ("return_sae_activations.positions", {"top_k": 1, "positions": "first"}),
        ("return_sae_activations.positions.end", {"top_k": 1, "positions": {"start": 3, "end": 3}}),
        ("return_sae_activations.features", {"top_k": 1, "positions": "all", "features": []}),  # A235
        ("return_sae_activations.features", {"top_k": 1, "positions": "all", "features": [-1]}),
        ("return_sae_activations.read_point", {"top_k": 1, "positions": "all", "read_point": "unsteered"}),
        ("return_sae_activations.layer", {"top_k": 1, "positions": "all", "layer": 1}),
    ],
)
def test_bad_wishes_for_activations_are_refused_naming_the_place(param: str, wanted: dict[str, Any]) -> None:
    for parse in (chat, text):
        with pytest.raises(SaeActivationsRefused) as caught:
            parse(return_sae_activations=wanted)
        assert caught.value.param == param


def test_a_missing_field_is_named() -> None:
    with pytest.raises(InvalidParameter) as caught:
        parse_chat({"messages": []})
    assert caught.value.message == "Invalid value for 'model': this field is required"
    with pytest.raises(InvalidParameter) as caught:
        parse_completion({"model": "m"})
    assert caught.value.param == "prompt"


def test_several_faults_are_counted() -> None:
    with pytest.raises(InvalidParameter) as caught:  # A031
        chat(temperature=3, top_p=2, n=0)
    assert caught.value.param == "temperature"
    assert caught.value.message.endswith("(and 2 more validation errors)")
    with pytest.raises(InvalidParameter) as caught:
        chat(temperature=3, top_p=2)
    assert caught.value.message.endswith("(and 1 more validation error)")


def test_a_refusal_never_quotes_the_value() -> None:
    with pytest.raises(InvalidParameter) as caught:
        chat(messages=[{"role": "SECRET", "content": "x"}], stop=[{"SECRET": 1}])
    assert "SECRET" not in caught.value.message
    assert "SECRET" not in str(caught.value.details)


def test_defaults() -> None:
    generation = chat().generation
    sampling = generation.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (1.0, 1.0, 0, 0.0)
    assert (sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty) == (1.0, 0.0, 0.0)
    assert (sampling.min_tokens, sampling.ignore_eos, sampling.seed, dict(sampling.logit_bias)) == (0, False, None, {})
    assert (generation.n, generation.best_of, generation.max_tokens, generation.stop, generation.logprobs) == (
        1,
        None,
        None,
        (),
        None,
    )


def test_null_means_the_default() -> None:
    names = """
        temperature top_p top_k min_p frequency_penalty presence_penalty repetition_penalty n best_of max_tokens
        max_completion_tokens min_tokens ignore_eos stop seed logit_bias stream stream_options logprobs top_logprobs
        chat_template_kwargs enable_thinking reasoning_effort response_format profile steering steering_intensity
        return_sae_activations extra_messages allowed_token_ids
    """
    nulls, plain = chat(**dict.fromkeys(names.split())), chat()
    # Each request has an id of its own, where requests have one.
    generations = [{**vars(parsed.generation), "request_id": None} for parsed in (nulls, plain)]
    assert generations[0] == generations[1]
    assert (nulls.stream, nulls.include_usage, nulls.unused) == (False, None, ())


def test_values_reach_the_request() -> None:
    generation = chat(
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        frequency_penalty=-1,
        presence_penalty=1,
        repeat_penalty=1.2,
        logit_bias={"5": 3, "007": -4.5},
        seed=4294967295,  # A037
        min_tokens=2,
        ignore_eos=True,
        n=2,
        best_of=3,
        max_tokens=9,
        stop="END",
    ).generation
    sampling = generation.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.5, 0.9, 40, 0.1)
    assert (sampling.frequency_penalty, sampling.presence_penalty, sampling.repetition_penalty) == (-1.0, 1.0, 1.2)
    assert dict(sampling.logit_bias) == {5: 3.0, 7: -4.5}
    assert (sampling.seed, sampling.min_tokens, sampling.ignore_eos) == (4294967295, 2, True)
    assert (generation.n, generation.best_of, generation.max_tokens, generation.stop) == (2, 3, 9, ("END",))


def test_whole_floats_are_integers() -> None:
    assert chat(max_tokens=8.0, seed=7.0).generation.max_tokens == 8


def test_sixteen_stops_pass() -> None:
    assert len(chat(stop=["a"] * 16).generation.stop) == 16  # A028


@pytest.mark.parametrize("seed", [0, 7, 4294967295, 4294967296, 2**53 + 1, 2**63 - 1, -2, -(2**63)])
def test_seeds_are_signed_64_bit_integers(seed: int) -> None:
    for parse in (chat, text):
        assert parse(seed=seed).generation.sampling.seed == seed


@pytest.mark.parametrize("none", [-1, -1.0, None])
def test_no_seed(none: Any) -> None:
    for parse in (chat, text):
        assert parse(seed=none).generation.sampling.seed is None
        assert parse(seed=none).notes == ()


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_minus_one_is_no_limit(name: str) -> None:
    for parse in (chat, text):
        parsed = parse(**{name: -1}, top_k=-1)
        assert (parsed.generation.max_tokens, parsed.generation.unlimited) == (None, True)
        assert parsed.generation.sampling.top_k == 0
        assert parsed.notes == (f"{name} -1 is taken as no limit", "top_k -1 is taken as no limit")
    plain = chat()
    assert (plain.generation.max_tokens, plain.generation.unlimited, plain.notes) == (None, False, ())
    with pytest.raises(InvalidParameter):
        chat(max_tokens=-1, max_completion_tokens=5)


def test_max_tokens_has_two_names() -> None:
    assert chat(max_completion_tokens=5).generation.max_tokens == 5
    assert chat(max_tokens=5, max_completion_tokens=5).generation.max_tokens == 5  # A035
    with pytest.raises(InvalidParameter) as caught:  # A034
        chat(max_tokens=5, max_completion_tokens=6)
    assert "'max_tokens'" in caught.value.message
    assert "'max_completion_tokens'" in caught.value.message
    assert caught.value.param is None


def test_the_repetition_penalty_has_two_names() -> None:
    assert chat(repetition_penalty=1.5).generation.sampling.repetition_penalty == 1.5
    assert chat(repetition_penalty=1.5, repeat_penalty=1.5).generation.sampling.repetition_penalty == 1.5
    with pytest.raises(InvalidParameter) as caught:
        chat(repetition_penalty=1.5, repeat_penalty=1.4)
    assert "'repeat_penalty'" in caught.value.message


def test_roles_and_content() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "g", "arguments": {"a": 1}}}
    parsed = chat(
        messages=[
            {"role": "developer", "content": "a"},  # A020
            {"role": "function", "content": "b", "name": "f"},
            {"role": "assistant", "content": None, "tool_calls": [call]},  # A022
            {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "input_text", "text": " d"}]},
            {"role": "tool"},
        ]
    )
    past = PastCall("call_1", "g", '{"a": 1}')
    assert isinstance(parsed.generation.input, ChatInput)
    assert parsed.generation.input.messages == (
        Message("system", "a"),
        Message("tool", "b", name="f"),
        Message("assistant", None, calls=(past,)),
        Message("user", "c d"),
        Message("tool", None, call_id="call_1", name="g"),
    )


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ([{"a": 1, "b": 1}, '{"a": 2}'], {"a": 2, "b": 1}),
        ("", {}),
        (None, {}),
        ([], {}),
        (["", {"a": 1}], {"a": 1}),
    ],
)
def test_template_variables_in_all_spellings(sent: Any, expected: dict[str, Any]) -> None:
    given = chat(chat_template_kwargs=sent).generation.input
    assert isinstance(given, ChatInput)
    assert dict(given.template_kwargs) == expected


def test_enable_thinking_is_a_template_variable() -> None:
    parsed = chat(enable_thinking=False)
    assert isinstance(parsed.generation.input, ChatInput)
    assert dict(parsed.generation.input.template_kwargs) == {"enable_thinking": False}
    assert parsed.unused == ()


def test_the_explicit_variable_wins_and_the_shorthand_is_reported() -> None:
    parsed = chat(enable_thinking=True, chat_template_kwargs={"enable_thinking": False})
    assert isinstance(parsed.generation.input, ChatInput)
    assert dict(parsed.generation.input.template_kwargs) == {"enable_thinking": False}
    assert parsed.unused == ("enable_thinking",)
    assert chat(enable_thinking=True, chat_template_kwargs={"enable_thinking": True}).unused == ()


def test_prompts() -> None:
    assert text(prompt="a").generation.input == TextInput(("a",), True)
    assert text(prompt=["a", "b"], add_special_tokens=False).generation.input == TextInput(("a", "b"), False)
    assert text(prompt="").generation.input == TextInput(("",), True)
    assert text(prompt=[1, 2.0]).generation.input == TextInput(((1, 2),), True)
    assert text(prompt=[[1], [2, 3]]).generation.input == TextInput(((1,), (2, 3)), True)
    assert text(prompt=[1], add_special_tokens=True).unused == ("add_special_tokens",)


def test_a_prompt_that_is_repeated() -> None:
    parsed = text(echo=True, max_tokens=0, logprobs=1)
    assert parsed.scoring is None
    assert (parsed.generation.echo, parsed.generation.max_tokens) == (True, 0)
    assert text(echo=True, max_tokens=1, logprobs=1, seed=1234).scoring is None
    assert text(echo=False, max_tokens=1, logprobs=1).scoring is not None
    assert text(echo=None).generation.echo is False


def test_logprobs_of_both_endpoints() -> None:
    assert chat(logprobs=True).generation.logprobs == 0
    assert chat(logprobs=True, top_logprobs=3).generation.logprobs == 3
    assert chat(logprobs=False).generation.logprobs is None
    assert text(logprobs=0).generation.logprobs == 0  # A121
    assert text(logprobs=20).generation.logprobs == 20
    assert text(logprobs=False).generation.logprobs is None


def test_stream_options() -> None:
    assert chat().include_usage is None
    parsed = chat(stream=True, stream_options={"include_usage": False, "continuous_usage_stats": True})
    assert (parsed.stream, parsed.include_usage, parsed.continuous_usage, parsed.unused) == (True, False, True, ())
    assert chat(stream_options={"include_usage": True}).unused == ("stream_options",)


def test_token_ids_without_logprobs_have_no_use() -> None:
    assert chat(return_tokens_as_token_ids=True).unused == ("return_tokens_as_token_ids",)
    parsed = chat(return_tokens_as_token_ids=True, logprobs=True)
    assert parsed.tokens_as_ids is True
    assert parsed.unused == ()


def test_steering_reaches_the_request() -> None:
    assert chat().generation.steering.is_empty
    assert chat(profile="calm", steering_intensity=0.5).generation.steering == SteeringRequest("calm", 0.5)
    sent = {"sae_id": "a", "features": [{"index": 7, "strength": -2}, {"index": 3, "strength": 500}]}
    assert text(steering=sent).generation.steering == SteeringRequest(
        inline=InlineSteering("a", ((3, 500.0), (7, -2.0)))
    )
    unsteered = text(steering={"features": []}).generation.steering.inline
    assert unsteered is not None
    assert unsteered.is_unsteered


@pytest.mark.parametrize(
    ("sent", "dial"),
    [(0, 0.0), (2, 2.0), ("1.5", 1.5), ("off", DialWord.OFF), ("min", DialWord.MIN), ("MAX", DialWord.MAX)],  # A040
)
def test_the_dial(sent: Any, dial: Any) -> None:
    assert chat(steering_intensity=sent).generation.steering.dial == dial


def test_a_wish_for_activations_reaches_the_request() -> None:
    wanted = {"top_k": 4, "positions": {"start": 2, "end": 5}, "features": [3, 3, 1], "read_point": "pre_steering"}
    assert chat().generation.activations is None
    assert chat(return_sae_activations=wanted).generation.activations == ActivationSpec(
        4, PositionRange(2, 5), None, (3, 1), ReadPoint.PRE_STEERING
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
CHAT_FIELDS, TEXT_FIELDS = sorted(Chat.declared()), sorted(Completions.declared())


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(CHAT_FIELDS), JSON), st.dictionaries(st.sampled_from(TEXT_FIELDS), JSON))
def test_any_json_is_a_request_or_a_refusal(chat_fields: dict[str, Any], text_fields: dict[str, Any]) -> None:
    for parse, dialect, fields in ((chat, Chat, chat_fields), (text, Completions, text_fields)):
        with contextlib.suppress(InvalidParameter, FieldNotHonoured, SaeActivationsRefused, ResponseFormatUnsupported):
            parsed = parse(**fields)
            judge(dialect.column, fields, dialect.declared(), parsed.unused, model="m", engine="transformers")
            parsed.constrained()


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(EmbeddingsBody.model_fields)), JSON))
def test_any_json_is_embedded_or_refused(fields: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidParameter):
        parse_embeddings({"model": "m", "input": "x", **fields})


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["type", "properties", "items", "enum", "anyOf", "$ref", "x"]), JSON))
def test_any_schema_is_taken_or_refused(schema: dict[str, Any]) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    with contextlib.suppress(ResponseFormatUnsupported):
        chat(response_format=form).constrained()


def test_a_body_that_scores() -> None:
    asked = {"allowed_token_ids": [5, 6], "max_tokens": 1, "temperature": 0.5, "top_p": 0.5, "stop": "x"}
    parsed = text(prompt=["a", "b"], logprobs=2, **asked)
    assert parsed.scoring is not None
    assert parsed.scoring.input == TextInput(("a", "b"), True)
    assert (parsed.scoring.allowed_token_ids, parsed.scoring.logprobs, parsed.scoring.temperature) == ((5, 6), 2, 0.5)
    assert parsed.unused == ("top_p", "stop")
    other = [{"role": "user", "content": "yo"}]
    parsed = chat(extra_messages=[other], logprobs=True, top_logprobs=3, max_completion_tokens=1)
    assert parsed.scoring is not None
    assert isinstance(parsed.scoring.input, tuple)
    assert [each.messages[0].content for each in parsed.scoring.input] == ["hi", "yo"]
    assert (parsed.scoring.allowed_token_ids, parsed.scoring.logprobs) == (None, 3)
    for body in ({}, {"max_tokens": 1}, {"logprobs": True}, {"logprobs": True, "max_tokens": 2}):
        assert chat(**body).scoring is None
    assert chat(logprobs=True, max_tokens=1, n=2).scoring is None
    assert chat(logprobs=True, max_tokens=1, stream=True).scoring is None
    for cap in ({}, {"max_tokens": 2}):
        with pytest.raises(InvalidParameter) as caught:
            chat(allowed_token_ids=[1], **cap)
        assert caught.value.param == "max_tokens"


def test_a_form_reaches_the_request() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": False}}
    asked = chat(response_format=form).constrained().response_format
    assert asked is not None
    assert (asked.schema, asked.name) == ({"type": "object"}, "n")
    asked = chat(response_format={"type": "json_object"}).constrained().response_format
    assert asked is not None
    assert (asked.schema, asked.name) == (None, None)
    assert chat(response_format={"type": "text"}).constrained().response_format is None
    with pytest.raises(ResponseFormatUnsupported):
        chat(response_format=form, stop="x").constrained()  # A161
