"""The settings the engine reads. ``app/settings.py`` composes them with the other packages' into one object.

Names are protocol; each is read from the environment under its own name and as ``MILLM_<NAME>``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

DeviceChoice = Literal["auto", "cpu", "cuda", "mps"]
DtypeChoice = Literal["auto", "float32", "bfloat16", "float16"]
KvType = Literal["f16", "f32", "q8_0"]
AttachDtype = Literal["model", "float32", "bfloat16", "float16"]


class EngineSettings(BaseModel):
    """What the engine needs to know; all fields have working defaults."""

    DEVICE: DeviceChoice = Field("auto", description="Where weights live: auto picks CUDA, then MPS, then the CPU.")
    DTYPE: DtypeChoice = Field(
        "auto",
        description="Number format of the weights. auto: the checkpoint's own on a GPU; float32 on a CPU, unless it "
        "computes bfloat16 natively.",
    )
    GGUF_CONTEXT_LENGTH: int = Field(
        32_768, ge=0, le=16_777_216, description="Most tokens of context of a GGUF model; 0: as its file states."
    )
    GGUF_KV_CACHE_TYPE: KvType = Field(
        "f16", description="Format in which a GGUF model keeps what it has read; q8_0 takes half the memory of f16."
    )
    GGUF_FLASH_ATTENTION: bool = Field(True, description="Let llama.cpp use flash attention where it can.")
    CPU_THREADS: int = Field(0, ge=0, le=1024, description="Threads for arithmetic; 0 means physical cores minus one.")
    ENABLE_CONTINUOUS_BATCHING: bool = Field(
        True, description="Decode requests together; false gives each its own pass."
    )
    MAX_LANES: int = Field(8, ge=1, le=256, description="How many answers are written at the same time.")
    MAX_PENDING_REQUESTS: int = Field(
        64, ge=0, le=100_000, description="Requests that may wait behind the running ones."
    )
    QUEUE_DURATION_WINDOW: int = Field(50, ge=1, description="Finished requests used to estimate the waiting time.")
    RETRY_AFTER_QUEUE_DEFAULT_S: int = Field(
        5, ge=1, description="Seconds after which to come back to a full queue whose wait is not known yet."
    )
    RETRY_AFTER_MAX_S: int = Field(60, ge=1, description="Most seconds after which to come back to a full queue.")
    PREFILL_CHUNK: int = Field(128, ge=1, le=8192, description="Prompt tokens read between two steps of other answers.")
    PREFIX_CACHE_MB: int = Field(
        512, ge=0, le=1_000_000, description="Megabytes of read text (KV) kept for prompts that begin alike; 0: none."
    )
    KV_MEMORY_MB: int = Field(
        0,
        ge=0,
        le=10_000_000,
        description="Megabytes of KV that running answers may take, others wait; 0: half of what a loaded model "
        "leaves free.",
    )
    TRANSFORMERS_IDLE_CACHE_RELEASE_S: float = Field(
        5.0,
        ge=-1,
        description="Idle seconds after which unused memory of a GPU goes back to its driver; negative: never.",
    )
    DEFAULT_MAX_TOKENS: int = Field(1024, ge=1, description="Most tokens written when a request sets no cap.")
    MAX_DOWNLOAD_WORKERS: int = Field(2, ge=1, le=16, description="Downloads that run at the same time.")
    HF_HUB_OFFLINE: bool = Field(False, description="Never ask the Hugging Face hub; what is here goes on working.")
    GRACEFUL_UNLOAD_TIMEOUT: float = Field(30.0, ge=0, description="Seconds an unload waits for running requests.")
    MODEL_LOAD_TIMEOUT: float = Field(180.0, gt=0, description="Seconds a request waits for its model to be loaded.")
    STEER_FIRST_POSITION: bool = Field(
        False, description="Steer the first token of a text too; it is the attention sink, so normally left alone."
    )
    CLUSTER_INTENSITY_MIN: float = Field(0.5, ge=0, le=2, description="Dial floor of a cluster that declares no range.")
    CLUSTER_INTENSITY_MAX: float = Field(1.5, ge=0, le=2, description="Dial ceiling of such a cluster.")
    CIRCUIT_INTENSITY_MIN: float = Field(0.0, ge=0, le=2, description="Lowest intensity any circuit may have.")
    CIRCUIT_INTENSITY_MAX: float = Field(2.0, ge=0, le=2, description="Highest intensity any circuit may have.")
    CIRCUIT_ALLOW_CONCURRENT: bool = Field(False, description="Whether two circuits may share a layer at all.")
    LOCK_ON_ATTACH: bool = Field(True, description="Attaching an SAE locks the model against other requests' loads.")
    MULTISAE_VRAM_ENVELOPE_MB: int = Field(
        4096, ge=1, description="Memory of attached SAEs above which is warned, in MB of 10⁶ bytes."
    )
    MULTISAE_ATTACH_DTYPE: AttachDtype = Field(
        "model", description="Number format of attached SAEs: model, or float32, bfloat16, float16."
    )
    AUTO_LOAD_MODEL: str | None = Field(None, description="Model (name or id) loaded at start when none is named.")
    SAE_ACTIVATIONS_MAX_TOP_K: int = Field(
        64, ge=1, le=65_536, description="Most features per position a request may ask back (return_sae_activations)."
    )
    SAE_ACTIVATIONS_MAX_ENTRIES: int = Field(
        65_536, ge=1, description="Most positions x features a request may ask back, counted before it runs."
    )
    SAE_ACTIVATIONS_ENCODE_CHUNK: int = Field(
        512, ge=1, le=65_536, description="Positions encoded at once for return_sae_activations."
    )
    STRUCTURED_OUTPUT_GRAMMAR_CACHE: int = Field(
        64, ge=1, le=4096, description="Compiled constraints (response_format) kept for the loaded model."
    )
    STRUCTURED_OUTPUT_COMPILE_TIMEOUT: float = Field(
        30.0, gt=0, description="Seconds a request waits for its response_format to be compiled."
    )
    DESCRIBE_TOOLS_MAX_TOKENS: int = Field(
        1024,
        ge=0,
        le=1_000_000,
        description="Most tokens spent on describing offered tools to a model whose chat template has none, and never "
        "more than a quarter of its window.",
    )
    EMBEDDINGS_MAX_INPUTS: int = Field(128, ge=1, le=2048, description="Most texts one embeddings request may hold.")
