"""Steering that belongs to a request, over a real socket: what it adds, what is said about it, what it leaves behind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from engine.actions.models.importing import import_local_model
from engine.engine import Engine
from engine.library.records import ProfileKind
from engine.steering import transitions
from tests.conftest import CheckpointMaker
from tests.contract.conftest import MODEL, Live, chat_body
from tests.contract.stage import CHAT, INTENSITY, STEERING, TEXT, Stage, inline
from tests.contract.test_streaming import text_of

PLACE = ("sae-1", 1)

# --- what is added ----------------------------------------------------------------------------------------------------


def test_inline_steering_on_both_endpoints(stage: Stage) -> None:
    stage.attach()
    for path in (CHAT, TEXT):
        post = stage.live.chat if path == CHAT else stage.live.text
        plain, steered = post(max_tokens=16), post(max_tokens=16, steering=inline((3, 60.0)))
        assert plain.status_code == steered.status_code == 200
        assert plain.json()["choices"] != steered.json()["choices"]
        assert plain.headers[STEERING] == "none"
        assert re.fullmatch(
            r'inline;sae="sae-1";layer=1;features=1;hash="sha256:[0-9a-f]{64}"', steered.headers[STEERING]
        )
        # It shares passes with everybody else.
        assert steered.headers["X-miLLM-Backend"] == "cbm"
        assert steered.headers["X-miLLM-Mode"] == "generation"
        assert INTENSITY not in steered.headers


def test_the_published_hashes(stage: Stage) -> None:
    def report(sae_id: str, *features: tuple[int, float]) -> tuple[str, str]:
        steering = inline(*features, sae_id=sae_id)
        header = stage.report(steering=steering, max_tokens=2)
        _, chunks = stage.stream(steering=steering, max_tokens=2)
        assert chunks[-1]["millm_steering"] == header
        found = re.search(r';features=(\d+);hash="sha256:([0-9a-f]{64})"', header)
        assert found is not None
        return found[1], found[2]

    lfm, gemma = (
        "LiquidAI--LFM2.5-1.2B-Instruct-sae--layer_11",
        "jbloom--gemma-2-2b-res-jb--layer_20--width_16k--average_l0_71",
    )
    stage.attach(lfm, 1, d_sae=1300)
    stage.attach(gemma, 2, d_sae=1300)
    stage.attach("demo--sae--layer_4", 3)
    # A214
    assert report(lfm, (1234, 8.0)) == ("1", "a4eae730e5105f422b93abeece7e03bda3c29b096c07aa9cee6f247e12844105")
    assert report(lfm, (1234, -8.0)) == ("1", "cc6c48faa720096e5c65fc1b2afab1b9b87659fb4465f20db421a2ed7fed78a7")
    assert report(gemma, (77, -2.5), (5, 0.1), (900, 0), (12, -0.0)) == (
        "2",
        "b843912201c5c18f872976e35af288e5f484d81e31a03a1dc16c3b9dbd82e710",
    )
    assert report(gemma, (3, 500)) == ("1", "3f51779e6e33ee248acf6f520cb9475b4ef62f68275060bb69d2e228033b78df")
    assert report("demo--sae--layer_4", (7, 1.5), (42, -3.0)) == (
        "2",
        "df8c15a130a30d4ac5eccbd59c56e9ed5c00ad7c966c57f00489c446aed9811d",
    )


def test_strengths_beyond_the_range_are_clamped_and_counted(stage: Stage) -> None:
    stage.attach()
    far = stage.ask(steering=inline((3, 500.0), (4, -201.0), (5, 200.0)))
    near = stage.ask(steering=inline((3, 200.0), (4, -200.0), (5, 200.0)))
    assert far.headers[STEERING].endswith(";clamped=2")  # A215
    assert far.headers[STEERING].removesuffix(";clamped=2") == near.headers[STEERING]
    assert far.json()["choices"] == near.json()["choices"]


def test_an_empty_list_is_unsteered_whatever_is_live(stage: Stage) -> None:
    assert stage.report(steering=inline()) == "none"  # no SAE is needed for it
    plain = stage.text()
    stage.attach()
    stage.engine.desk.apply(transitions.set_values(PLACE, {3: 90.0}))
    before = stage.live_steering()
    assert stage.text() != plain
    unsteered = stage.ask(steering=inline())
    assert unsteered.json()["choices"][0]["text"] == plain
    assert unsteered.headers[STEERING] == "none"
    assert stage.live_steering() == before


def test_inline_steering_is_the_whole_set(stage: Stage) -> None:
    stage.attach("sae-1", 1)
    stage.attach("sae-3", 3)
    alone = stage.text(steering=inline((3, 60.0), sae_id="sae-1"))
    stage.engine.desk.apply(transitions.set_values(("sae-3", 3), {9: 120.0}))
    stage.engine.desk.apply(transitions.set_values(PLACE, {8: 50.0}))
    again = stage.ask(steering=inline((3, 60.0), sae_id="sae-1"))
    assert again.json()["choices"][0]["text"] == alone
    assert again.headers[STEERING].startswith('inline;sae="sae-1";layer=1;features=1;')
    assert "sae-3" not in again.headers[STEERING]
    live = stage.report()
    assert [part.split(";")[:3] for part in live.split(", ")] == [
        ["manual", 'sae="sae-1"', "layer=1"],
        ["manual", 'sae="sae-3"', "layer=3"],
    ]


def test_eight_steerings_and_two_unsteered_at_once(stage: Stage) -> None:
    for layer in (0, 1, 3):
        stage.attach(f"sae-{layer}", layer)
    stage.profile("calm", {7: 40.0}, sae_id="sae-0", layer=0)
    stage.profile("loud", {9: 30.0, 11: -30.0}, sae_id="sae-3", layer=3)
    fields: list[dict[str, Any]] = [
        {},
        {"steering": inline((3, 60.0), sae_id="sae-1")},
        {"steering": inline((3, -60.0), sae_id="sae-1")},
        {"steering": inline((7, 70.0), (8, 40.0), sae_id="sae-0")},
        {"steering": inline((1, 90.0), sae_id="sae-3")},
        {"steering": inline()},
        {"profile": "calm"},
        {"profile": "calm", "steering_intensity": 2},
        {"profile": "loud"},
        {"steering": inline((30, 150.0), sae_id="sae-1")},
    ]
    # The penalty keeps the tiny model from writing one token over and over.
    same = {"prompt": "the sea was calm and the ship", "max_tokens": 24, "repetition_penalty": 1.5}
    bodies = [{**same, **each} for each in fields]
    alone = [stage.ask(**body) for body in bodies]
    with ThreadPoolExecutor(10) as pool:
        with stage.paused():
            asked = [pool.submit(stage.ask, **body) for body in bodies]
            stage.wait_pending(10)
        together = [answer.result() for answer in asked]
    assert {answer.headers["X-miLLM-Backend"] for answer in together} == {"cbm"}
    assert [answer.json()["choices"] for answer in together] == [answer.json()["choices"] for answer in alone]
    assert [answer.headers[STEERING] for answer in together] == [answer.headers[STEERING] for answer in alone]
    texts = [answer.json()["choices"][0]["text"] for answer in together]
    assert texts[0] == texts[5]
    assert len(set(texts)) >= 8


def test_several_choices_and_seeds(stage: Stage) -> None:
    stage.attach()
    steering = inline((3, 60.0))
    one = stage.text(steering=steering)
    two = stage.ask(steering=steering, n=2, prompt=["the quick brown fox", "the sea"])
    assert [choice["text"] for choice in two.json()["choices"]][:2] == [one, one]
    assert two.headers[STEERING].startswith("inline;")
    sampled = {"steering": steering, "seed": 5, "temperature": 1.0}
    first, again = stage.ask(**sampled), stage.ask(**sampled)
    assert first.json()["choices"] == again.json()["choices"]
    assert first.headers["X-miLLM-Backend"] == "serial"
    assert first.json()["choices"] != stage.ask(seed=5, temperature=1.0).json()["choices"]


# --- profiles ---------------------------------------------------------------------------------------------------------


def test_a_profile_by_name(stage: Stage) -> None:
    stage.attach()
    stage.profile("calm", {3: 60.0})
    stage.profile("half", {3: 60.0}, intensity=0.5)
    stage.profile("empty", {})
    plain, full = stage.text(), stage.text(steering=inline((3, 60.0)))
    halved = stage.text(steering=inline((3, 30.0)))
    assert len({plain, full, halved}) == 3
    named = stage.ask(profile="calm")
    assert named.json()["choices"][0]["text"] == full
    assert re.fullmatch(
        r'profile;name="calm";source=request;intensity="1\.0";sae="sae-1";layer=1;features=1;hash="sha256:\w{64}"',
        named.headers[STEERING],
    )
    assert INTENSITY not in named.headers
    assert stage.text(profile="half") == halved
    assert 'intensity="0.5"' in stage.report(profile="half")
    # A name without values is unsteered, and never falls through to what is live.
    stage.engine.desk.apply(transitions.set_values(PLACE, {9: 120.0}))
    assert stage.text() != plain
    assert stage.text(profile="empty") == plain
    assert stage.report(profile="empty") == "none"


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("stream", [True, False])
def test_an_unknown_profile(stage: Stage, path: str, stream: bool) -> None:
    status, code, param, message = stage.refused(path, profile="nobody", stream=stream)
    assert (status, code, param) == (404, "profile_not_found", "profile")  # A209
    assert "nobody" in message


def test_a_profile_leaves_live_steering_as_it_is(stage: Stage) -> None:
    stage.attach()
    stage.attach("sae-3", 3)
    stage.profile("calm", {3: 60.0, 5: -12.5})
    stage.engine.desk.apply(transitions.set_values(PLACE, {8: 50.0, 9: -1.5}))
    stage.engine.desk.apply(transitions.set_values(("sae-3", 3), {1: 7.25}))
    stage.engine.desk.apply(transitions.set_enabled(("sae-3", 3), False))
    before = stage.live_steering()
    stage.ask(profile="calm")
    stage.stream(profile="calm", steering_intensity=1.5)
    assert stage.live_steering() == before  # A211


def test_names_beyond_ascii(stage: Stage) -> None:
    stage.attach()
    stage.profile('naïve 東京 100% "loud" \\', {3: 60.0})
    header = stage.report(profile='naïve 東京 100% "loud" \\')
    # A227
    assert header.startswith(
        'profile;name="na%C3%AFve %E6%9D%B1%E4%BA%AC 100%25 %22loud%22 %5C";source=request;intensity="1.0";'
    )
    _, chunks = stage.stream(profile='naïve 東京 100% "loud" \\')
    assert chunks[-1]["millm_steering"] == header


def test_where_a_profile_runs(stage: Stage) -> None:
    stage.profile("one", {3: 60.0})
    stage.profile("far", {3: 60.0}, sae_id="elsewhere", layer=2)
    stage.profile("loose", {3: 60.0}, sae_id=None, layer=None)
    stage.profile("beyond", {64: 60.0})
    for name in ("one", "far", "loose", "beyond"):
        # Nothing is attached at all: unsteered, and said so.
        assert stage.report(profile=name) == "none"
    stage.attach()
    one = stage.text(profile="one")
    assert stage.text(profile="loose") == one
    assert stage.refused(profile="far")[:3] == (400, "sae_not_attached", "profile")
    assert stage.refused(profile="beyond")[:3] == (400, "invalid_feature_index", "profile")
    # Another SAE at the layer with as many features takes the place of the one it was made with.
    stage.attach("other", 2)
    assert 'sae="other";layer=2' in stage.report(profile="far")
    status, code, param, message = stage.refused(profile="loose")
    assert (status, code, param) == (400, "invalid_parameter", "profile")
    assert "'sae-1' at layer 1" in message
    assert "'other' at layer 2" in message


# --- the dial ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("off", [0, 0.0, "0", "off", "OFF"])
def test_the_dial_at_nothing(stage: Stage, off: Any) -> None:
    plain = stage.text()
    stage.attach()
    # Nothing to turn down: the header is left out.
    assert INTENSITY not in stage.ask(steering_intensity=off).headers
    stage.engine.desk.apply(transitions.set_values(PLACE, {3: 90.0}))
    stage.profile("calm", {3: 60.0})
    for fields in ({}, {"profile": "calm"}):
        dark = stage.ask(steering_intensity=off, **fields)
        assert dark.headers[INTENSITY] == "0"  # A212
        assert dark.headers[STEERING] == "none"
        assert dark.json()["choices"][0]["text"] == plain
        response, chunks = stage.stream(steering_intensity=off, **fields)
        assert response.headers[INTENSITY] == "0"
        assert text_of(chunks) == plain
        assert chunks[-1]["millm_steering"] == "none"


def test_the_dial_over_hand_set_values(stage: Stage) -> None:
    stage.attach()
    stage.engine.desk.apply(transitions.set_values(PLACE, {3: 40.0}))
    before = stage.live_steering()
    doubled = stage.ask(steering_intensity=2)
    assert doubled.headers[INTENSITY] == "2.0"
    assert doubled.json()["choices"][0]["text"] == stage.text(steering=inline((3, 80.0)))
    assert doubled.headers[STEERING].startswith('manual;sae="sae-1";layer=1;features=1;')
    assert stage.ask(steering_intensity="0.4375").headers[INTENSITY] == "0.4375"
    # One is what is live anyway.
    assert INTENSITY not in stage.ask(steering_intensity=1).headers
    stage.engine.desk.apply(transitions.set_enabled(PLACE, False))
    # A dial never switches on what is off.
    assert stage.report(steering_intensity=2) == "none"
    stage.engine.desk.apply(transitions.set_enabled(PLACE, True))
    assert stage.live_steering()[1:] == before[1:]


def test_the_dial_over_the_active_profile(stage: Stage) -> None:
    stage.attach()
    stage.activate(stage.profile("calm", {3: 40.0}, intensity=0.5))
    assert 'profile;name="calm";source=active;intensity="0.5";' in stage.report()
    dialled = stage.ask(steering_intensity=2)
    # Absolute: it takes the place of the stored 0.5 and does not multiply with it.
    assert dialled.headers[INTENSITY] == "2.0"
    assert 'source=active;intensity="2.0";' in dialled.headers[STEERING]
    assert dialled.json()["choices"][0]["text"] == stage.text(steering=inline((3, 80.0)))


def test_a_cluster_s_dial_is_held_at_the_top_only(stage: Stage) -> None:
    stage.attach()
    stage.profile("sea", {3: 40.0}, kind=ProfileKind.CLUSTER)
    assert stage.ask(profile="sea", steering_intensity=2).headers[INTENSITY] == "1.5"
    assert stage.ask(profile="sea", steering_intensity="max").headers[INTENSITY] == "1.5"
    assert stage.ask(profile="sea", steering_intensity="min").headers[INTENSITY] == "0.5"
    assert stage.ask(profile="sea", steering_intensity=0.25).headers[INTENSITY] == "0.25"


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("stream", [True, False])
def test_what_does_not_go_together(stage: Stage, path: str, stream: bool) -> None:
    steering = inline((3, 6.0))
    for other, value in (("profile", "calm"), ("steering_intensity", 0), ("steering_intensity", "off")):
        status, code, param, message = stage.refused(path, steering=steering, stream=stream, **{other: value})
        assert (status, code, param) == (400, "invalid_parameter", "steering")  # A217
        assert "'steering'" in message
        assert f"'{other}'" in message


@pytest.mark.parametrize(
    ("steering", "param"),
    [
        ({"features": [{"index": 3, "strength": 1}, {"index": 3, "strength": 2}]}, "steering.features.1.index"),
        ({"features": [{"index": 3, "strength": float("nan")}]}, "steering.features.0.strength"),
        ({"features": [{"index": 3, "strength": float("inf")}]}, "steering.features.0.strength"),
        ({"features": [{"index": 3, "strength": True}]}, "steering.features.0.strength"),
        ({"features": [{"index": 3, "strength": None}]}, "steering.features.0.strength"),
        ({"features": [{"index": -1, "strength": 1}]}, "steering.features.0.index"),
        ({"features": [], "sae_id": "sae-1"}, "steering.sae_id"),
        ({"sae_id": "sae-1"}, "steering.features"),
        ({"features": [], "layer": 1}, "steering.layer"),
    ],
)
def test_malformed_steering(stage: Stage, steering: dict[str, Any], param: str) -> None:
    raw = json.dumps(chat_body(steering=steering)).encode()
    with stage.live.http() as client:
        response = client.post(CHAT, content=raw, headers={"Content-Type": "application/json"})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "invalid_parameter", param)  # A218


@pytest.mark.parametrize("stream", [True, False])
def test_aims_that_miss(stage: Stage, stream: bool) -> None:
    nothing = stage.refused(steering=inline((3, 6.0)), stream=stream)
    assert nothing[:3] == (400, "sae_not_attached", "steering")
    stage.attach("sae-1", 1)
    unknown = stage.refused(steering=inline((3, 6.0), sae_id="nobody"), stream=stream)
    assert unknown[:3] == (400, "sae_not_attached", "steering.sae_id")  # A220
    assert "'sae-1' at layer 1" in unknown[3]
    outside = stage.refused(steering=inline((64, 6.0)), stream=stream)
    assert outside[:3] == (400, "invalid_feature_index", "steering.features")
    assert "0 to 63" in outside[3]
    stage.attach("sae-3", 3)
    unnamed = stage.refused(steering=inline((3, 6.0)), stream=stream)
    assert unnamed[:3] == (400, "invalid_parameter", "steering.sae_id")  # A221
    assert "'sae-1' at layer 1" in unnamed[3]
    assert "'sae-3' at layer 3" in unnamed[3]


@pytest.mark.parametrize(("name", "value"), [("profile", "calm"), ("steering_intensity", 1), ("steering", inline())])
def test_scoring_is_never_steered(stage: Stage, name: str, value: Any) -> None:
    stage.profile("calm", {3: 60.0})
    for path, logprobs in ((CHAT, True), (TEXT, 2)):
        status, code, param, message = stage.refused(path, logprobs=logprobs, max_tokens=1, **{name: value})
        assert (status, code, param) == (400, "field_not_honoured", name)  # A136
        assert "never steered" in message


def test_steering_for_a_model_that_is_not_there(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    engine = own_engine(checkpoint("llama"))
    import_local_model(engine.library, engine.events, checkpoint("qwen2"))
    live = serve(engine)
    wanted = {"top_k": 1, "positions": "last"}
    for fields, param in (
        ({"steering": inline((3, 6.0))}, "steering"),  # A223
        ({"return_sae_activations": wanted}, "return_sae_activations"),
    ):
        for response in (live.chat(model="tiny-qwen2", **fields), live.text(model="tiny-qwen2", stream=True, **fields)):
            assert response.status_code == 400
            error = response.json()["error"]
            assert (error["code"], error["param"]) == ("sae_not_attached", param)
            assert "tiny-qwen2" in error["message"]
    assert engine.shelf.resident is not None
    assert engine.shelf.resident.record.name == "tiny-llama"
    assert engine.shelf.loading is None
    # Asking for no steering is no reason to refuse.
    assert live.chat(model="tiny-qwen2", steering=inline()).json()["model"] == "tiny-qwen2"


def test_strict_mode_takes_steering_fields(stage: Stage) -> None:
    stage.attach()
    stage.profile("calm", {3: 60.0})
    for fields in ({"profile": "calm", "steering_intensity": 0.5}, {"steering": inline((3, 6.0))}, {"profile": None}):
        response = stage.live.text(headers={"X-miLLM-Strict": "true"}, **fields)
        assert response.status_code == 200
        assert "X-miLLM-Ignored-Fields" not in response.headers


# --- the official client ----------------------------------------------------------------------------------------------


def test_with_the_sdk(stage: Stage) -> None:
    stage.attach()
    messages: Any = [{"role": "user", "content": "the quick brown fox"}]
    with stage.live.sdk() as client:
        whole = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=messages, max_tokens=8, extra_body={"steering": inline((3, 60.0))}
        )
        assert whole.headers[STEERING].startswith("inline;")
        chunks = list(
            client.chat.completions.create(
                model=MODEL, messages=messages, max_tokens=8, stream=True, extra_body={"steering": inline((3, 60.0))}
            )
        )
        assert chunks[-1].choices[0].finish_reason == "length"
        assert chunks[-1].model_extra == {"millm_steering": whole.headers[STEERING]}  # A094
        with pytest.raises(openai.NotFoundError) as unknown:
            client.chat.completions.create(model=MODEL, messages=messages, extra_body={"profile": "nobody"})
    assert (unknown.value.code, unknown.value.param) == ("profile_not_found", "profile")
