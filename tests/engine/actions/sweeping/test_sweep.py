"""A sweep on a real engine: every cell with its own plan, measured on an unsteered re-reading."""

from __future__ import annotations

import csv
import io
import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.actions.experiments.sweeps import record_of_sweep, sweep_of
from engine.actions.saes.reading import ReadPlace
from engine.actions.saes.reading import submit as submit_reading
from engine.actions.sweeping import actions
from engine.actions.sweeping.export import as_csv, as_markdown
from engine.actions.sweeping.rereading import Reread, Rereading, Steered
from engine.actions.sweeping.runs import SweepRun
from engine.actions.sweeping.settings import BaseKind, CellResult, SweepBase, SweepSettings
from engine.documents.errors import ClusterNotFound
from engine.engine import Engine
from engine.errors import InvalidParameter, ModelNotLoaded, QueueFull, SaeNotAttached
from engine.generation.prepared import RequestHandle
from engine.generation.request import ChatInput, Delta, GenerationRequest, Message, TextDelta, TextInput
from engine.library.errors import CircuitNotFound, ProfileNotFound
from engine.models.backends.backend import Backend
from engine.sampling import Sampling
from engine.steering.request import SteeringRequest
from tests.engine.actions.saes.driving import context_of
from tests.made_saes import make_mirror_sae
from tests.tiny import THINKING_TEMPLATE, teach
from tests.waiting import wait_until

EngineMaker = Callable[..., Engine]
CheckpointMaker = Callable[..., Path]
PLACE = ("mirror", 1)
BASE = SweepBase(BaseKind.LIVE, "by hand", {PLACE: {3: 40.0, 35: -10.0}})


@pytest.fixture
def engine(make_engine: EngineMaker, tmp_path: Path) -> Engine:
    return ready(make_engine(), tmp_path)


def ready(engine: Engine, folder: Path) -> Engine:
    engine.saes.import_local(make_mirror_sae(folder / "mirror", layer=1), sae_id="mirror")
    engine.attachments.attach("mirror")
    return engine


def answered(engine: Engine, prompt: str, tokens: int, **steering: object) -> tuple[str, list[int]]:
    """What the engine writes for one request of its own."""
    heard: list[Delta] = []
    request = GenerationRequest(
        "tiny-llama",
        ChatInput((Message("user", prompt),)),
        sampling=Sampling(temperature=0.0),
        max_tokens=tokens,
        steering=SteeringRequest(**steering),  # type: ignore[arg-type]
    )
    engine.generation.submit(engine.generation.prepare(request), heard.append)
    wait_until(lambda: engine.generation.stats().queue_pending == 0, "the answer")
    texts = [each for each in heard if isinstance(each, TextDelta)]
    return "".join(each.content for each in texts), [token.token_id for each in texts for token in each.tokens]


def cells_of(engine: Engine, settings: SweepSettings, base: SweepBase = BASE) -> dict[tuple[int, float], CellResult]:
    heard: list[CellResult] = []
    outcome = engine.sweeps.run(settings, base, heard.append)
    assert outcome.complete and list(outcome.cells) == heard and len(heard) == settings.cells
    return {(cell.prompt, cell.intensity): cell for cell in heard}


def test_each_cell_is_what_a_request_of_its_own_gives(engine: Engine) -> None:
    engine.profiles.create("two", steering={3: 40.0, 35: -10.0}, sae_id="mirror", layer=1)
    prompts = ("the sea", "a smile")
    cells = cells_of(engine, SweepSettings(prompts, (0.0, 0.5, 2.0), max_tokens=8))
    assert set(cells) == {(p, i) for p in (0, 1) for i in (0.0, 0.5, 2.0)}
    for (number, intensity), cell in cells.items():
        own = {"profile": "two", "dial": intensity} if intensity else {}
        text, ids = answered(engine, prompts[number], 8, **own)
        assert (cell.text, cell.tokens, cell.error) == (text, len(ids), None)
    assert len({cell.text for (number, _), cell in cells.items() if number == 0}) > 1, "the dial does something"


def test_the_live_state_is_neither_read_nor_changed(engine: Engine) -> None:
    settings = SweepSettings(("the sea",), (0.0, 1.0), max_tokens=6)
    before = cells_of(engine, settings)
    engine.hand_steering.set_value(7, 90.0, sae_id="mirror", layer=1)
    version = engine.desk.live_plan.version
    assert cells_of(engine, settings) == before
    assert engine.desk.live_plan.version == version
    assert dict(engine.desk.state.entry(PLACE).values) == {7: 90.0}


def test_the_measures_are_of_an_unsteered_reading(engine: Engine) -> None:
    engine.hand_steering.set_value(7, 90.0, sae_id="mirror", layer=1)
    (cell,) = cells_of(engine, SweepSettings(("the sea",), (2.0,), max_tokens=8, topic=frozenset({"fox"}))).values()
    resident = engine.shelf.resident
    assert resident is not None
    tokenizer, model = resident.backend.tokenizer, resident.backend._model  # type: ignore[attr-defined]
    prompt = tokenizer.encode("<|im_start|>user\nthe sea<|im_end|>\n<|im_start|>assistant\n", False)
    engine.profiles.create("two", steering={3: 40.0, 35: -10.0}, sae_id="mirror", layer=1)
    _, ids = answered(engine, "the sea", 8, profile="two", dial=2.0)

    def read() -> tuple[float, float]:
        with torch.inference_mode():
            out = model(torch.tensor([[*prompt, *ids]]), output_hidden_states=True)
            chances = out.logits[0].log_softmax(-1)
            start = len(prompt)
            losses = [-float(chances[start - 1 + n, token]) for n, token in enumerate(ids)]
            stream = out.hidden_states[2][0, start:]
            # Feature 3 is coordinate 3 where positive; 35 is coordinate 3 where negative, steered down.
            fires = stream[:, 3].clamp(min=0).mean() - (-stream[:, 3]).clamp(min=0).mean()
        return sum(losses) / len(losses), float(fires)

    loss, fires = engine._thread.run(read).result(60)
    assert cell.loss == pytest.approx(loss, abs=1e-4)
    assert cell.perplexity == pytest.approx(math.exp(loss), rel=1e-3)
    assert cell.features == pytest.approx(fires, abs=1e-4)
    assert cell.topic == 0.0


def test_an_answer_is_measured_without_its_reasoning(
    make_engine: EngineMaker, checkpoint: CheckpointMaker, tmp_path: Path
) -> None:
    folder = teach(checkpoint("llama", chat_template=THINKING_TEMPLATE), tmp_path / "taught", "qu</think>fox")
    # Chunks of a few tokens: the reasoning lies in some of them, the answer in others, both in one.
    engine = ready(make_engine(folder, PREFILL_CHUNK=16), tmp_path)
    settings = SweepSettings(("the sea",), (0.0,), max_tokens=40, topic=frozenset({"fox", "qu"}))
    outcome = engine.sweeps.run(settings, BASE, lambda _cell: None)
    (cell,) = outcome.cells
    assert (cell.text, cell.reasoning, cell.tokens, cell.finish) == ("fox", "qu", 3, "stop")
    assert (cell.topic, cell.trigrams) == (1.0, 0.0)
    resident = engine.shelf.resident
    assert resident is not None
    tokenizer, model = resident.backend.tokenizer, resident.backend._model  # type: ignore[attr-defined]
    prompt = "<|im_start|>user\nthe sea<|im_end|>\n<|im_start|>assistant\n<think>\n"
    letters = [tokenizer.encode(letter, False)[0] for letter in "qu</think>fox"]

    def read() -> tuple[float, float]:
        with torch.inference_mode():
            ids = [*tokenizer.encode(prompt, False), *letters]
            out = model(torch.tensor([ids]), output_hidden_states=True)
            losses = [-float(out.logits[0].log_softmax(-1)[-4 + n, token]) for n, token in enumerate(letters[-3:])]
            stream = out.hidden_states[2][0, -3:]
            return sum(losses) / 3, float(stream[:, 3].clamp(min=0).mean() - (-stream[:, 3]).clamp(min=0).mean())

    loss, fires = engine._thread.run(read).result(60)
    assert cell.loss == pytest.approx(loss, abs=1e-4)
    assert cell.features == pytest.approx(fires, abs=1e-4)
    assert sweep_of(record_of_sweep(outcome, {})) == outcome
    assert as_csv(outcome, {}).splitlines()[1].endswith(",,qu")
    assert "| plain | qu |" in as_markdown(outcome, {})


def test_an_answer_that_is_all_reasoning_has_no_measures(
    make_engine: EngineMaker, checkpoint: CheckpointMaker, tmp_path: Path
) -> None:
    folder = teach(checkpoint("llama", chat_template=THINKING_TEMPLATE), tmp_path / "taught", "qu </thin")
    engine = ready(make_engine(folder), tmp_path)
    (cell,) = cells_of(engine, SweepSettings(("the sea",), (0.0,), max_tokens=40)).values()
    assert (cell.text, cell.reasoning, cell.tokens, cell.error) == ("", "qu </thin", 0, None)
    assert (cell.loss, cell.features) == (None, None)


class OneByOne:
    """A backend that gives the logits of a pass's last token only."""

    def __init__(self, backend: Backend) -> None:
        self.new_store, self.extend, self.tokenizer = backend.new_store, backend.extend, backend.tokenizer
        self.capabilities = replace(backend.capabilities, all_logits=False)


@pytest.mark.parametrize("answer", [range(7, 20), [*range(7, 10), 15, 16]])
@pytest.mark.parametrize("chunk", [3, 128])
def test_a_backend_without_all_logits_reads_token_by_token(engine: Engine, chunk: int, answer: Sequence[int]) -> None:
    resident = engine.shelf.resident
    assert resident is not None and resident.backend.capabilities.all_logits
    narrow: Any = OneByOne(resident.backend)
    attachment = engine.desk.state.attachments[0]
    steered = [Steered(ReadPlace("mirror", 1, attachment.sae), {3: 1.0, 35: -1.0})]

    def read(backend: Any) -> Reread:
        reading = Rereading(context_of(engine), resident, tuple(range(40, 60)), answer, steered)
        while not reading.step(backend, chunk):
            pass
        reading.finish()
        return reading.future.result(0)

    slowly, at_once = (engine._thread.run(partial(read, each)).result(60) for each in (narrow, resident.backend))
    assert slowly.loss == pytest.approx(at_once.loss, abs=1e-4)
    assert slowly.features == pytest.approx(at_once.features, abs=1e-4)


def test_sampling_with_a_seed_repeats_itself(engine: Engine) -> None:
    settings = SweepSettings(
        ("the sea", "a smile"), (0.0, 1.0), max_tokens=6, sampling=Sampling(temperature=1.0, seed=5)
    )
    assert cells_of(engine, settings) == cells_of(engine, settings)


def test_a_prompt_too_long_says_so_and_the_others_go_on(engine: Engine) -> None:
    cells = cells_of(engine, SweepSettings(("the sea " * 3000, "a smile"), (0.0, 1.0), max_tokens=4))
    assert all("context window" in str(cells[0, value].error) for value in (0.0, 1.0))
    assert all(cells[1, value].error is None for value in (0.0, 1.0))


def test_it_can_be_stopped(engine: Engine) -> None:
    stop = threading.Event()
    heard: list[CellResult] = []

    def on_cell(cell: CellResult) -> None:
        heard.append(cell)
        stop.set()

    settings = SweepSettings(tuple(f"the sea {n}" for n in range(40)), (0.0, 1.0), max_tokens=4)
    outcome = engine.sweeps.run(settings, BASE, on_cell, stop)
    assert not outcome.complete and len(outcome.cells) == 1
    wait_until(lambda: engine.generation.stats().queue_pending == 0, "what was under way to end")


class Crowded:
    """An engine with one lane and one place to wait, and what becomes of a sweep's attempts to get in."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = engine
        self.refused: list[str] = []
        self._handles: list[RequestHandle] = []
        self._patch = monkeypatch
        monkeypatch.setattr(engine.generation, "submit", self._told("answer", engine.generation.submit))
        monkeypatch.setattr("engine.actions.sweeping.actions.submit", self._told("re-reading", submit_reading))

    def _told(self, what: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def submit(*args: Any) -> Any:
            try:
                return real(*args)
            except QueueFull:
                self.refused.append(what)
                raise

        return submit

    def fill(self) -> None:
        """Two endless answers: one has the lane, or will have it, and one the place behind it."""
        request = GenerationRequest(
            "tiny-llama", TextInput(("the sea",)), sampling=Sampling(temperature=0.0, ignore_eos=True), max_tokens=2000
        )
        for _ in range(2):
            prepared = self.engine.generation.prepare(request)
            self._handles.append(self.engine.generation.submit(prepared, lambda delta: None))

    def empty(self) -> None:
        while self._handles:
            self._handles.pop().cancel()

    def wait_refused(self, what: str, times: int) -> None:
        wait_until(lambda: self.refused.count(what) >= times, f"{times} refusals")

    @contextmanager
    def standing(self) -> Iterator[None]:
        """The engine thread does nothing meanwhile: who has filled the queue stays."""
        go_on = threading.Event()
        job = self.engine._thread.run(lambda: go_on.wait(60))
        try:
            yield
        finally:
            go_on.set()
            job.result(60)


@pytest.fixture
def crowded(make_engine: EngineMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crowded:
    return Crowded(ready(make_engine(MAX_LANES=1, MAX_PENDING_REQUESTS=1), tmp_path), monkeypatch)


SMALL = SweepSettings(("the sea",), (0.0, 1.0), max_tokens=4)


def test_it_waits_for_room_in_a_full_queue(crowded: Crowded) -> None:
    with crowded.standing():
        crowded.fill()
        run = crowded.engine.sweeps.start(SMALL, BASE)
        crowded.wait_refused("answer", 2)
        assert crowded.engine.sweeps.runs.get(run.id).cells == ()
        crowded.empty()
    ended = ended_sweep(crowded.engine, run.id)
    assert (ended.state.value, [cell.error for cell in ended.cells]) == ("complete", [None, None])


def test_an_answer_waits_for_room_to_be_read_again(crowded: Crowded, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue fills between an answer's end and its re-reading, which would have cost the answer."""
    run: list[str] = []
    with ExitStack() as held:
        told = actions.submit

        def filled_first(*args: Any) -> Any:
            if not crowded.refused:
                held.enter_context(crowded.standing())
                crowded.fill()
            return told(*args)

        monkeypatch.setattr(actions, "submit", filled_first)
        run.append(crowded.engine.sweeps.start(SweepSettings(("the sea",), (1.0,), max_tokens=4), BASE).id)
        crowded.wait_refused("re-reading", 2)
        crowded.empty()
    ended = ended_sweep(crowded.engine, run[0])
    (cell,) = ended.cells
    assert (cell.error, cell.tokens) == (None, 4)
    assert cell.loss is not None


def test_a_sweep_that_waits_for_room_can_be_cancelled(crowded: Crowded) -> None:
    with crowded.standing():
        crowded.fill()
        run = crowded.engine.sweeps.start(SMALL, BASE)
        crowded.wait_refused("answer", 1)
        crowded.engine.sweeps.runs.cancel(run.id)
        ended = ended_sweep(crowded.engine, run.id)
        assert (ended.state.value, ended.cells) == ("cancelled", ())
        crowded.empty()


def test_the_wait_for_room_is_bounded(crowded: Crowded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "ROOM_WAIT_S", 0.0)
    with crowded.standing():
        crowded.fill()
        ended = ended_sweep(crowded.engine, crowded.engine.sweeps.start(SMALL, BASE).id)
        assert ended.state.value == "complete"
        assert ["The queue is full" in str(cell.error) for cell in ended.cells] == [True, True]
        crowded.empty()


def ended_sweep(engine: Engine, sweep_id: str) -> SweepRun:
    wait_until(lambda: engine.sweeps.runs.get(sweep_id).ended_at is not None, "the sweep's end")
    return engine.sweeps.runs.get(sweep_id)


def test_what_can_be_swept(engine: Engine, make_engine: EngineMaker) -> None:
    made = engine.profiles.create("calm", steering={3: 4.0}, sae_id="mirror", layer=1)
    assert [(each.kind.value, each.name) for each in engine.sweeps.choices()] == [
        ("profile", "calm"),
        ("live", "What steers now"),
    ]
    assert engine.sweeps.resolve(BaseKind.PROFILE, made.record.id).authored == {PLACE: {3: 4.0}}
    with pytest.raises(InvalidParameter, match="What steers now steers nothing"):
        engine.sweeps.resolve(BaseKind.LIVE)
    engine.hand_steering.set_value(9, 5.0, sae_id="mirror", layer=1)
    assert engine.sweeps.resolve(BaseKind.LIVE).authored == {PLACE: {9: 5.0}}
    with pytest.raises(ProfileNotFound):
        engine.sweeps.resolve(BaseKind.PROFILE, "prof_none")
    # A profile that is no cluster is none under that name either.
    with pytest.raises(ClusterNotFound):
        engine.sweeps.resolve(BaseKind.CLUSTER, made.record.id)
    with pytest.raises(CircuitNotFound):
        engine.sweeps.resolve(BaseKind.CIRCUIT, "circ_none")
    engine.attachments.detach("mirror")
    with pytest.raises(SaeNotAttached):
        engine.sweeps.resolve(BaseKind.PROFILE, made.record.id)
    with pytest.raises(SaeNotAttached, match="'mirror' at layer 1 is not attached, so by hand cannot steer"):
        engine.sweeps.run(SweepSettings(("x",), (1.0,)), BASE, lambda _cell: None)
    with pytest.raises(ModelNotLoaded):
        make_engine(None).sweeps.run(SweepSettings(("x",), (1.0,)), BASE, lambda _cell: None)


def test_a_circuit_is_swept_over_all_its_layers(engine: Engine, tmp_path: Path) -> None:
    engine.saes.import_local(make_mirror_sae(tmp_path / "upper", layer=2), sae_id="upper")
    engine.attachments.attach("upper")
    document = {
        "kind": "mistudio.circuit-definition",
        "schema_version": "1",
        "name": "Two layers",
        "rung": 0,
        "saes": [
            {"mistudio_sae_id": "mirror", "layer": 1, "n_features": 64, "d_model": 32},
            {"mistudio_sae_id": "upper", "layer": 2, "n_features": 64, "d_model": 32},
        ],
        "members": [
            {"layer": layer, "member_kind": "feature_ref", "feature": {"feature_idx": 3, "strength": 6.0}}
            for layer in (1, 2)
        ],
        "edges": [],
    }
    outcome = engine.circuits.import_document(json.dumps(document).encode())
    base = engine.sweeps.resolve(BaseKind.CIRCUIT, outcome.record.id)
    assert {place: dict(values) for place, values in base.authored.items()} == {
        ("mirror", 1): {3: 6.0},
        ("upper", 2): {3: 6.0},
    }
    cells = cells_of(engine, SweepSettings(("the sea",), (0.0, 1.0), max_tokens=4), base)
    assert all(cell.error is None and cell.features is not None for cell in cells.values())


def test_the_exports_say_everything(engine: Engine) -> None:
    settings = SweepSettings(("=the | sea", "a <smile>"), (0.0, 1.0), max_tokens=4, topic=frozenset({"sea", "fox"}))
    outcome = engine.sweeps.run(settings, BASE, lambda _cell: None)
    versions = {"miLLM Desktop": "0.1.0", "torch": "2.9"}
    rows = list(csv.DictReader(io.StringIO(as_csv(outcome, versions))))
    assert [(row["prompt"], row["side"], row["intensity"]) for row in rows] == [
        ("'=the | sea", "plain", ""),
        ("'=the | sea", "steered", "1.0"),
        ("a <smile>", "plain", ""),
        ("a <smile>", "steered", "1.0"),
    ]
    for row, cell in zip(rows, sorted(outcome.cells, key=lambda each: (each.prompt, each.intensity)), strict=True):
        assert row["answer"].removeprefix("'") == cell.text and int(row["tokens"]) == cell.tokens
        # All digits: what is read back is the very number.
        figures = (row["topic_share"], row["features"], row["perplexity"], row["repeated_trigrams"])
        assert tuple(map(float, figures)) == (cell.topic, cell.features, cell.perplexity, cell.trigrams)
    page = as_markdown(outcome, versions)
    assert page.startswith("# Sweep of by hand\n\n- Dial: by hand (live)\n- Model: tiny-llama\n")
    assert "| λ | answers | topic | features | perplexity | repeats |" in page
    for note in (
        "- SAEs: mirror @ layer 1\n",
        "- λ: plain, 1\n",
        "- Sampling: greedy\n",
        "- Topic words: fox sea\n",
        "- Strengths at λ 1, mirror @ layer 1: 3: 40, 35: -10\n",
        "- Length of what is added at λ 1: ",
        "- Versions: miLLM Desktop 0.1.0, torch 2.9\n",
    ):
        assert note in page
    assert "## =the | sea" in page and page.count("\n| 1 | ") == page.count("\n| plain | ") == 3
