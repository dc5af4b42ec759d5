"""What is tried when a model is loaded: that it takes a step, that two texts keep apart, that a text can go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.actions.models.importing import import_local_model
from engine.errors import EngineUnsupported, UnsupportedQuantization
from engine.events import EventBus
from engine.generation.embeddings import EmbeddingRequest
from engine.generation.request import TextInput
from engine.generation.scoring import ScoringRequest
from engine.library.database import Library
from engine.models.backends import transformers_backend
from engine.models.backends.module_state import ModuleState
from engine.models.backends.transformers_backend import TransformersBackend
from engine.models.hardware.devices import DevicePlacement
from engine.models.inspection.architecture import check_generative_architecture
from engine.models.inspection.quantization import check_stored
from engine.sampling import Sampling
from tests.engine.generation.driving import Driver
from tests.tiny import build_checkpoint, build_tokenizer

TOLERANCE = 1e-3


def spread(folder: Path, config: Any) -> Path:
    """A random model of ``config`` whose layers matter, with the tiny tokenizer."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.25)
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """RecurrentGemma keeps states in its modules; Mamba has no attention; LFM2 is a hybrid that does neither."""
    import transformers as t

    tokenizer = build_tokenizer()
    shape = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    ids = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 3}
    folder = tmp_path_factory.mktemp("families")
    configs = {
        "recurrent-gemma": t.RecurrentGemmaConfig(
            **shape,
            **ids,
            num_key_value_heads=1,
            head_dim=8,
            lru_width=32,
            attention_window_size=16,
            block_types=["recurrent", "attention"],
        ),
        "mamba": t.MambaConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, state_size=4, **ids),
        "lfm2": t.Lfm2Config(**shape, **ids, num_key_value_heads=2, layer_types=["conv", "full_attention"]),
    }
    return {name: spread(folder / name, config) for name, config in configs.items()}


def load(folder: Path) -> TransformersBackend:
    placement = DevicePlacement(torch.device("cpu"), torch.float32, "test")
    return TransformersBackend.load(folder, placement, lambda share, stage: None)


NAMES = ("recurrent-gemma", "mamba", "lfm2")


@pytest.mark.parametrize("name", NAMES)
def test_a_text_is_read_as_the_library_reads_it_whole(name: str, made: dict[str, Path]) -> None:
    backend = load(made[name])
    assert not backend.capabilities.batching and backend.capabilities.reason
    assert backend.capabilities.chunks is (name == "lfm2")
    ids = [5, 9, 23, 77, 140, 8, 61, 200, 31, 4, 17, 99]
    plain = AutoModelForCausalLM.from_pretrained(made[name]).eval()
    with torch.inference_mode():
        expected = plain(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    for cut in (1, 3, 7):
        other = backend.new_store()
        store = backend.new_store()
        found = [backend.extend_all(store, ids[:cut])]
        backend.extend(other, [3, 1, 4])
        found.append(backend.extend_all(store, ids[cut:9]))
        backend.extend(other, [1])
        for token in ids[9:]:
            found.append(backend.extend(store, [token])[None])
        assert float((torch.cat(found) - expected).abs().max()) < TOLERANCE
        assert store.lengths == [12]


@pytest.mark.parametrize("name", NAMES)
def test_answers_at_once_are_the_answers_alone(name: str, made: dict[str, Path], library: Library) -> None:
    driver = Driver(made[name], library)
    texts = ("Hi", "Zebra", "x", "the sea was calm and the ship went slowly along the coast")
    free = Sampling(temperature=0.0, ignore_eos=True)
    alone = [driver.alone(text, sampling=free, max_tokens=24).ids() for text in texts]
    embedding = EmbeddingRequest(driver.name, ("the old forest in the evening", "one"))
    scoring = ScoringRequest(driver.name, TextInput(("the quick brown fox jumps", "one")), logprobs=3)

    def read() -> tuple[Any, Any]:
        return (
            driver.service.embed(driver.service.prepare_embeddings(embedding)),
            driver.service.score(driver.service.prepare_scoring(scoring)),
        )

    vectors, scored = read()
    driver.finish()
    together = [driver.send(text, sampling=free, max_tokens=24) for text in texts]
    several = driver.send("Hi", sampling=free, max_tokens=24, n=2)
    driver.tick(3)
    more = read()
    driver.finish()
    assert [answer.ids() for answer in together] == alone
    assert [several.ids(0), several.ids(1)] == [alone[0], alone[0]]
    assert (more[0].result().vectors == vectors.result().vectors).all()
    assert [each.top for each in more[1].result().prompts] == [each.top for each in scored.result().prompts]


def test_what_cannot_be_kept_apart_is_refused(made: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModuleState, "_put", lambda self, values: None)
    with pytest.raises(EngineUnsupported, match="two texts run into each other") as refused:
        load(made["recurrent-gemma"])
    assert refused.value.remedy and refused.value.details["model_type"] == "recurrent_gemma"


def test_a_model_that_takes_no_step_is_refused_in_words(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no kernel for this")

    monkeypatch.setattr(transformers_backend, "step_masks", broken)
    with pytest.raises(EngineUnsupported, match="takes no step here: RuntimeError: no kernel for this"):
        load(tiny_checkpoint)


def test_a_family_without_a_cache_is_refused_at_import_and_at_load(tmp_path: Path, library: Library) -> None:
    import transformers as t

    config = t.OpenAIGPTConfig(vocab_size=len(build_tokenizer()), n_embd=32, n_layer=2, n_head=4)
    folder = spread(tmp_path / "gpt1", config)
    with pytest.raises(EngineUnsupported, match="in a form of its own"):
        load(folder)
    with pytest.raises(EngineUnsupported, match="in a form of its own"):
        import_local_model(library, EventBus(), folder)
    with pytest.raises(EngineUnsupported):
        check_generative_architecture("rwkv", "RwkvForCausalLM", {})
    assert library.models.list() == []


def test_a_checkpoint_that_nothing_here_can_read(tmp_path: Path, library: Library) -> None:
    folder = build_checkpoint(tmp_path / "stored")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedQuantization, match=r"gptq, which needs .*: not installed here") as refused:
        import_local_model(library, EventBus(), folder)
    assert refused.value.remedy and "gptqmodel" in refused.value.details["missing"]
    assert library.models.list() == []
    with pytest.raises(EngineUnsupported, match="needs what is not installed here"):
        load(folder)
    check_stored(folder, None)
    check_stored(folder, "a-method-of-tomorrow")
