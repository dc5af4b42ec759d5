"""``return_sae_activations`` over a real socket: which positions are read, what is refused, and where it is sent."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.contract.conftest import MODEL, Live
from tests.contract.raw import RawRequest
from tests.contract.stage import CHAT, STEERING, TEXT, Stage, inline, stream_body
from tests.waiting import wait_until

PROMPT = "the sea was calm and the ship went"


def wish(positions: Any = "all", top_k: int = 4, **more: Any) -> dict[str, Any]:
    return {"top_k": top_k, "positions": positions, **more}


def read(response: httpx.Response) -> dict[str, Any]:
    """The activations of an answer."""
    body = response.json()
    assert body["millm"].keys() == {"sae_activations"}
    found = body["millm"]["sae_activations"]
    assert found.keys() == {"sae_id", "layer", "read_point", "positions", "note"}
    return dict(found)


def positions(response: httpx.Response) -> list[int]:
    return [each["position"] for each in read(response)["positions"]]


def prompt_ids(stage: Stage, prompt: str = PROMPT) -> list[int]:
    loaded = stage.engine.shelf.resident
    assert loaded is not None
    return list(loaded.backend.tokenizer.encode(prompt, add_special_tokens=True))


# --- what comes back --------------------------------------------------------------------------------------------------


def test_only_where_asked(stage: Stage) -> None:
    stage.attach()
    for post in (stage.live.chat, stage.live.text):
        assert "millm" not in post().json()
        assert "millm" not in post(return_sae_activations=None).json()
        answer = post(return_sae_activations=wish())
        assert answer.status_code == 200
        assert answer.json()["choices"] == post().json()["choices"]
        found = read(answer)
        assert (found["sae_id"], found["layer"], found["read_point"]) == ("sae-1", 1, "post_steering")
        assert isinstance(found["note"], str)
        assert found["note"]
        # Read in passes of its own.
        assert answer.headers["X-miLLM-Backend"] == "serial"
        assert answer.headers[STEERING] == "none"
        assert "X-miLLM-Ignored-Fields" not in answer.headers


def test_positions(stage: Stage) -> None:
    stage.attach()
    ids = prompt_ids(stage)
    assert len(ids) > 5

    def ask(wanted: Any) -> httpx.Response:
        return stage.ask(prompt=PROMPT, max_tokens=10, return_sae_activations=wish(wanted))

    end = len(ids) + 9
    everything = ask("all")
    assert positions(everything) == list(range(end))
    assert [each["token_id"] for each in read(everything)["positions"]][: len(ids)] == ids
    assert positions(ask("prompt")) == list(range(len(ids)))
    assert positions(ask("completion")) == list(range(len(ids), end))  # A229: nine of ten
    assert positions(ask("last")) == [end - 1]
    assert positions(ask({"start": 2, "end": 5})) == [2, 3, 4]  # A230
    assert positions(ask({"start": len(ids) - 1, "end": len(ids) + 2})) == [len(ids) - 1, len(ids), len(ids) + 1]
    # Beyond what is read there is nothing.
    assert positions(ask({"start": end - 1, "end": 5000})) == [end - 1]
    assert positions(ask({"start": 4000, "end": 5000})) == []
    # Whatever is chosen, a position reads the same.
    whole = {each["position"]: each for each in read(everything)["positions"]}
    for wanted in ("prompt", "completion", "last"):
        for each in read(ask(wanted))["positions"]:
            same = whole[each["position"]]
            assert each["token_id"] == same["token_id"]
            assert [f["index"] for f in each["features"]] == [f["index"] for f in same["features"]]
            assert [f["value"] for f in each["features"]] == pytest.approx(
                [f["value"] for f in same["features"]], abs=1e-4
            )


def test_the_strongest_come_first_and_candidates_bound_them(stage: Stage) -> None:
    stage.attach()
    for entry in read(stage.ask(return_sae_activations=wish("prompt", 64)))["positions"]:
        values = [each["value"] for each in entry["features"]]
        assert len(values) == 64
        assert values == sorted(values, reverse=True)
        assert sorted(each["index"] for each in entry["features"]) == list(range(64))
    for entry in read(stage.ask(return_sae_activations=wish("prompt", 8, features=[40, 3, 40])))["positions"]:
        assert {each["index"] for each in entry["features"]} == {3, 40}
        assert len(entry["features"]) == 2
    for entry in read(stage.ask(return_sae_activations=wish("prompt", 1, features=[40, 3])))["positions"]:
        assert len(entry["features"]) == 1


def test_read_points_differ_by_what_the_layer_adds(stage: Stage) -> None:
    # Feature i of this SAE is coordinate i, feature 32 + i its negative, and a strength adds itself to the coordinate.
    stage.attach("mirror", 1, mirror=True)
    stage.attach("sae-3", 3)

    def coordinate(read_point: str, **fields: Any) -> dict[int, float]:
        wanted = wish("prompt", 2, sae_id="mirror", features=[5, 37], read_point=read_point)
        answer = stage.ask(prompt=PROMPT, return_sae_activations=wanted, max_tokens=2, **fields)
        found = read(answer)
        assert found["read_point"] == read_point
        values: dict[int, float] = {}
        for each in found["positions"]:
            both = {feature["index"]: feature["value"] for feature in each["features"]}
            values[each["position"]] = both[5] - both[37]
        return values

    here = {"steering": inline((5, 12.5), sae_id="mirror")}
    before, after = coordinate("pre_steering", **here), coordinate("post_steering", **here)
    assert len(before) > 5
    for position, value in before.items():
        added = 0.0 if position == 0 else 12.5
        assert after[position] - value == pytest.approx(added, abs=1e-4)  # A239
    # The layer itself adds nothing: both sides are the same, with steering above it and with none.
    above = {"steering": inline((5, 12.5), sae_id="sae-3")}
    for fields in ({}, above):
        assert coordinate("pre_steering", **fields) == coordinate("post_steering", **fields)
    assert coordinate("post_steering") == pytest.approx(before, abs=1e-4)


def test_the_first_position_says_that_it_is_not_steered(stage: Stage) -> None:
    stage.attach()
    first, *others = read(stage.ask(return_sae_activations=wish("prompt")))["positions"]
    assert first["steered"] is False
    assert all("steered" not in each for each in others)


def test_a_stream_sends_them_on_its_last_choice(stage: Stage) -> None:
    stage.attach()
    for path in (CHAT, TEXT):
        post = stage.live.chat if path == CHAT else stage.live.text
        wanted = wish("completion", 3)
        whole = read(post(max_tokens=16, ignore_eos=True, return_sae_activations=wanted))
        for options in (None, {"include_usage": True}):
            response, chunks = stage.stream(path, return_sae_activations=wanted, stream_options=options)
            assert response.headers["X-miLLM-Backend"] == "serial"
            closing = chunks[-1] if options is None else chunks[-2]
            assert closing["choices"][0]["finish_reason"] == "length"
            assert closing["millm"] == {"sae_activations": whole}
            assert closing["millm_steering"] == "none"
            assert [("millm" in chunk, "millm_steering" in chunk) for chunk in chunks].count((True, True)) == 1
            assert sum("millm" in chunk for chunk in chunks) == 1
            if options is not None:
                assert (chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]) == ([], 16)
        _, chunks = stage.stream(path)
        assert not any("millm" in chunk for chunk in chunks)


def test_a_stream_sends_them_in_chunks_of_their_own(stage: Stage, serve: Callable[..., Live]) -> None:
    stage.attach()
    own = Stage(serve(stage.engine, REPORT_CHUNKS="separate"), stage.folder)
    for path in (CHAT, TEXT):
        for options, before in ((None, ["finish"]), ({"include_usage": True}, ["finish", "usage"])):
            _, chunks = own.stream(path, return_sae_activations=wish("completion", 3), stream_options=options)
            kinds = [kind_of(chunk) for chunk in chunks]
            assert kinds[-len(before) - 2 :] == [*before, "activations", "steering"]  # A236, A094
            assert kinds.count("activations") == 1
            sent = chunks[-2]
            assert sent["choices"] == []
            envelope = ("id", "object", "created", "model")
            assert [sent[key] for key in envelope] == [chunks[0][key] for key in envelope]
            assert sent["model"] == MODEL


def kind_of(chunk: dict[str, Any]) -> str:
    if "millm" in chunk:
        return "activations"
    if "millm_steering" in chunk:
        return "steering"
    if not chunk["choices"]:
        return "usage"
    return "finish" if chunk["choices"][0]["finish_reason"] else "text"


def test_each_gets_its_own(stage: Stage) -> None:
    stage.attach()
    prompts = [PROMPT, "a language model writes one token", "the ship went slowly", "naïve café, 東京"]
    bodies: list[dict[str, Any]] = [{"prompt": each, "return_sae_activations": wish()} for each in prompts]
    bodies += [{"prompt": PROMPT, "steering": inline((3, 60.0)), "return_sae_activations": wish("last")}]
    alone = [read(stage.ask(**body)) for body in bodies]
    with ThreadPoolExecutor(7) as pool:
        with stage.paused():
            asked = [pool.submit(stage.ask, **body) for body in bodies]
            company = [pool.submit(stage.ask, steering=inline((9, 90.0))) for _ in range(2)]
            stage.wait_pending(7)
        together = [read(answer.result()) for answer in asked]
        assert all("millm" not in other.result().json() for other in company)
    for prompt, found in zip(prompts, together[:4], strict=True):
        ids = prompt_ids(stage, prompt)
        assert [each["token_id"] for each in found["positions"]][: len(ids)] == ids  # A238
    assert together == alone


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("wanted", "param"),
    [
        (wish(top_k=65), "return_sae_activations.top_k"),  # A232
        (wish(top_k=0), "return_sae_activations.top_k"),
        (wish(features=[64]), "return_sae_activations.features"),  # A235
        (wish(features=[]), "return_sae_activations.features"),  # A235
        (wish(features=[-1]), "return_sae_activations.features"),
        (wish({"start": 5, "end": 5}), "return_sae_activations.positions.end"),
        (wish({"start": 5}), "return_sae_activations.positions"),
        (wish("everything"), "return_sae_activations.positions"),
        (wish(read_point="unsteered"), "return_sae_activations.read_point"),
        (wish(sae="sae-1"), "return_sae_activations.sae"),
        ({"positions": "all"}, "return_sae_activations.top_k"),
        ({"top_k": 1}, "return_sae_activations.positions"),
    ],
)
def test_wishes_that_cannot_be_met(stage: Stage, wanted: dict[str, Any], param: str, stream: bool) -> None:
    stage.attach()
    for path in (CHAT, TEXT):
        refused = stage.refused(path, return_sae_activations=wanted, stream=stream)
        assert refused[:3] == (400, "sae_activations_refused", param)


def test_what_is_no_object_is_a_bad_parameter(stage: Stage) -> None:
    values: list[Any] = ["all", [], True, 1]
    for value in values:
        assert stage.refused(return_sae_activations=value)[:3] == (400, "invalid_parameter", "return_sae_activations")


@pytest.mark.parametrize("stream", [True, False])
def test_the_most_that_could_come_is_counted_before_anything_runs(stage: Stage, stream: bool) -> None:
    stage.attach()
    with stage.paused():
        # Refused though nothing can run now.
        refused = stage.refused(return_sae_activations=wish(top_k=64), max_tokens=2000, stream=stream)  # A233
        assert refused[:3] == (400, "sae_activations_refused", "return_sae_activations.positions")
        assert "65536" in refused[3]
        # 65,536 entries are 1,024 positions of 64: one more is too many.
        over = stage.refused(return_sae_activations=wish({"start": 0, "end": 1025}, 64), max_tokens=2000, stream=stream)
        assert over[1] == "sae_activations_refused"
    loaded = stage.engine.shelf.resident
    assert loaded is not None
    # The end token comes at once, so that the cap is not reached.
    end = {str(token): 100 for token in loaded.backend.tokenizer.eos_ids}
    fits = stage.live.text(return_sae_activations=wish({"start": 0, "end": 1024}, 64), max_tokens=2000, logit_bias=end)
    assert fits.status_code == 200


def test_one_answer_to_one_prompt(stage: Stage) -> None:
    stage.attach()
    for fields in ({"n": 2}, {"best_of": 2}, {"prompt": ["the sea", "a ship"]}):
        assert stage.refused(return_sae_activations=wish(), **fields)[:3] == (
            400,
            "sae_activations_refused",
            "return_sae_activations",
        )
    assert stage.refused(CHAT, return_sae_activations=wish(), n=2, stream=True)[1] == "sae_activations_refused"
    extra = [[{"role": "user", "content": "hi"}]]
    refused = stage.refused(CHAT, return_sae_activations=wish(), extra_messages=extra)
    assert refused[:3] == (400, "sae_activations_refused", "return_sae_activations")
    assert "extra_messages" in refused[3]


@pytest.mark.parametrize("stream", [True, False])
def test_which_sae(stage: Stage, stream: bool) -> None:
    nothing = stage.refused(return_sae_activations=wish(), stream=stream)
    assert nothing[:3] == (400, "sae_not_attached", "return_sae_activations")
    stage.attach("sae-1", 1)
    unknown = stage.refused(return_sae_activations=wish(sae_id="nobody"), stream=stream)
    assert unknown[:3] == (400, "sae_not_attached", "return_sae_activations.sae_id")
    assert "'sae-1' at layer 1" in unknown[3]
    stage.attach("sae-3", 3)
    unnamed = stage.refused(return_sae_activations=wish(), stream=stream)
    assert unnamed[:3] == (400, "sae_activations_refused", "return_sae_activations.sae_id")
    assert "'sae-1' at layer 1" in unnamed[3]
    assert "'sae-3' at layer 3" in unnamed[3]
    assert read(stage.ask(return_sae_activations=wish(sae_id="sae-3")))["layer"] == 3


def test_a_reader_that_leaves_takes_nothing_along(stage: Stage) -> None:
    stage.attach()
    alone = read(stage.ask(prompt=PROMPT, return_sae_activations=wish()))
    body = stream_body(TEXT, max_tokens=400, return_sae_activations=wish())
    with RawRequest(stage.live, TEXT, body) as request:
        wait_until(lambda: stage.engine.generation.stats().in_flight == 1, "a running lane")
        request.leave()
    stage.live.wait_idle()
    assert read(stage.ask(prompt=PROMPT, return_sae_activations=wish())) == alone
