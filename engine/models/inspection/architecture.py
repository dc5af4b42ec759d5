"""Whether a checkpoint's config.json describes a model that writes text on the transformers backend.

Judged from the config alone. transformers' own tables of causal models pull in torch, so only its list of known model
types is read, which does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import EngineUnsupported, ModelNotGenerative, shortened

CAUSAL_ENDINGS = ("ForCausalLM", "LMHeadModel", "ModelWithLMHead", "WithLMHeadModel")
"""How transformers ends the class names of models that predict the next token."""

ENCODER_FAMILIES = frozenset(
    {
        "bert",
        "big_bird",
        "camembert",
        "data2vec-text",
        "electra",
        "ernie",
        "flaubert",
        "megatron-bert",
        "rembert",
        "roberta",
        "roberta-prelayernorm",
        "roc_bert",
        "roformer",
        "xlm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xmod",
    }
)
"""Families that look both ways unless their config says ``is_decoder``, whatever their class is called."""

TEXT_INSIDE = frozenset({"gemma3", "gemma3n", "gemma4", "gemma4_unified", "qwen3_5", "qwen3_5_moe"})
"""Model types that also read images, whose language model transformers loads for text alone."""

WITHOUT_CACHE = frozenset({"openai-gpt", "reformer", "rwkv", "xlnet"})
"""Families whose models take none of the library's caches, so that each token would mean reading all before it."""

_TEXT_MODEL = "Import a decoder-only language model, such as one of the Llama, Qwen, Gemma or Mistral families."


def known_model_types() -> frozenset[str]:
    """Every ``model_type`` the installed transformers has code for. Imports transformers on first use (about a
    second).
    """
    try:
        from transformers.models.auto.auto_mappings import CONFIG_MAPPING_NAMES
    except ImportError:
        # Before the list had a module of its own it was here, at the price of importing torch.
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    return frozenset(CONFIG_MAPPING_NAMES)


def check_generative_architecture(model_type: str, architecture: str, config: Mapping[str, Any]) -> None:
    """Raise unless ``config`` is a decoder-only language model that transformers knows.

    Raises :class:`ModelNotGenerative` for encoders, encoder-decoders and classifiers, :class:`EngineUnsupported` for a
    family the installed transformers has no code for and for models whose text part cannot be loaded by itself.
    """
    named = f"{architecture} (model type {shortened(model_type)})"
    if model_type not in known_model_types():
        if config.get("auto_map"):
            raise EngineUnsupported(
                f"{named} comes with Python code of its own, which this program does not run.",
                details={"architecture": architecture, "model_type": model_type},
                remedy="Import a version of the model that transformers supports without extra code.",
            )
        raise EngineUnsupported(
            f"{named} is not known to the installed transformers library.",
            details={"architecture": architecture, "model_type": model_type},
            remedy="Update this program, or import a model of a family it knows.",
        )
    if config.get("is_encoder_decoder") is True:
        raise _not_generative(f"{named} is an encoder-decoder model; only decoder-only language models are run.")
    if model_type in WITHOUT_CACHE:
        raise EngineUnsupported(
            f"{named} keeps what it has read in a form of its own, not in a cache that this program can hold for each "
            "answer, so it cannot write here.",
            details={"architecture": architecture, "model_type": model_type},
            remedy=_TEXT_MODEL,
        )
    if architecture.endswith(CAUSAL_ENDINGS):
        if model_type in ENCODER_FAMILIES and config.get("is_decoder") is not True:
            raise _not_generative(f"{named} is an encoder: its config does not say is_decoder.")
        return
    if isinstance(config.get("text_config"), dict):
        if model_type in TEXT_INSIDE:
            return
        raise EngineUnsupported(
            f"{named} reads images or sound as well as text, and its text part cannot be run by itself here.",
            details={"architecture": architecture, "model_type": model_type},
            remedy=_TEXT_MODEL,
        )
    raise _not_generative(f"{named} is not made to write text: it has no head that predicts the next token.")


def _not_generative(message: str) -> ModelNotGenerative:
    return ModelNotGenerative(message, param="model", remedy=_TEXT_MODEL)
