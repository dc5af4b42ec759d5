"""Looks at a transformers checkpoint folder without torch and without reading a weight: is it whole, and what is in it?

Everything that is wrong is reported at once, so that a person repairs a folder in one go. Symlinks are followed; a
snapshot in a Hugging Face cache is a folder of them.
"""

from __future__ import annotations

import importlib.util
import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.checked import there
from engine.counting import plural, so_many
from engine.errors import InvalidParameter, shortened
from engine.files import open_file
from engine.models.inspection.architecture import check_generative_architecture
from engine.models.inspection.checkpoint_problems import DOWNLOAD_AGAIN, PERMISSIONS, Findings
from engine.models.inspection.names import NON_GENERATIVE_TAGS, TEXT_GENERATION
from engine.models.inspection.safetensors_header import SafetensorsHeaderError, StoredTensor, read_header

MEMORY_FACTOR = 1.2
"""Memory over the size of the weights: room for activations and a context."""

DEFAULT_CONTEXT = 2048
"""Tokens of context taken for a config that states no limit."""

SYSTEM_FOLDERS = ("/proc", "/sys", "/dev", "/run", "/boot", "/etc", "/var/run", "/private/etc", "/private/var/run")
"""Where no model lies and nothing should be probed; ``/private`` is where macOS keeps some of them."""

MOST_NAMED = 200
"""Missing files that are named in one refusal."""
MAX_WORD = 200
"""Characters of a name in a config, such as the architecture's, which is kept and repeated."""
MAX_FILE_NAME = 255
"""Characters of a file's name that are repeated: no file system takes longer ones."""

PARSED_TOKENIZER_BYTES = 4_000_000
"""Larger tokenizers are only looked at from both ends: parsing one holds the interpreter, and with it the window."""

TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")

FORMAT_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
"""torch's words for the safetensors formats that weights are floating point in."""

_CONVERT = "Convert the weights to safetensors: load the model in transformers and save it with save_pretrained()."
_TOKENIZER = "Put the model's tokenizer files into the folder; tokenizer.json is the usual one."
_FOLDER = "Choose the folder that holds the model's config.json and model.safetensors."


@dataclass(frozen=True)
class CheckpointReport:
    """What a sound checkpoint holds. A size its config does not state is 0.

    Attributes:
        context_length: Tokens; ``DEFAULT_CONTEXT`` where the config states no limit.
        kv_width: Key-value heads × head width: the values a token's keys take in one layer.
        params: Floating-point values stored; for a quantised checkpoint all values stored.
        dtype: torch's word for the format most of the weights are stored in.
        disk_size_bytes: Weights, config and tokenizer files.
        estimated_memory_bytes: To run it in the format it is stored in.
        quantization_method: As its config names it (``gptq``), or None.
        pipeline_tag: What its model card says it is for; ``text-generation`` where nothing says otherwise.
    """

    path: Path
    architecture: str
    model_type: str
    context_length: int
    vocab_size: int
    n_layers: int
    d_model: int
    kv_width: int
    params: int
    dtype: str
    disk_size_bytes: int
    estimated_memory_bytes: int
    has_chat_template: bool
    quantization_method: str | None
    pipeline_tag: str


def inspect_checkpoint(path: Path) -> CheckpointReport:
    """Describe the checkpoint folder ``path``.

    Raises :class:`InvalidParameter` for a system folder, :class:`CheckpointInvalid` listing every problem found,
    :class:`ModelNotGenerative` or :class:`EngineUnsupported` for a model that cannot be run whatever its files are
    like.
    """
    refuse_system_folder(path)
    _require_folder(path)
    findings = Findings(path)
    _refuse_other_things(findings)
    config = _read_config(findings)
    tensors = _read_weights(findings)
    has_chat_template = _check_tokenizer(findings)
    _check_optional(findings)
    if config is not None:
        architecture = _architecture(findings, config)
        sizes = _sizes(findings, config)
    findings.refuse()
    config, architecture = there(config), there(architecture)
    weight_bytes = sum(tensor.nbytes for tensor in tensors)
    method = _quantization_method(config)
    floats = [tensor for tensor in tensors if tensor.dtype in FORMAT_NAMES]
    return CheckpointReport(
        path=path,
        architecture=architecture,
        model_type=config["model_type"],
        context_length=sizes["context_length"] or DEFAULT_CONTEXT,
        vocab_size=sizes["vocab_size"],
        n_layers=sizes["n_layers"],
        d_model=sizes["d_model"],
        kv_width=_kv_width(sizes),
        params=sum(tensor.numel for tensor in (tensors if method else floats)),
        dtype=_main_format(floats or tensors),
        disk_size_bytes=sum(findings.files.values()),
        estimated_memory_bytes=int(weight_bytes * MEMORY_FACTOR),
        has_chat_template=has_chat_template,
        quantization_method=method,
        pipeline_tag=_pipeline_tag(path),
    )


@dataclass(frozen=True)
class ConfigFacts:
    """What a config.json says, before the weights are here; 0 and None where it is silent."""

    architecture: str | None
    model_type: str | None
    context_length: int
    vocab_size: int
    n_layers: int
    d_model: int
    kv_width: int
    dtype: str | None
    quantization_method: str | None


def read_config_facts(config: Mapping[str, Any]) -> ConfigFacts:
    """What ``config``, a parsed config.json, says about the model."""
    sizes = _sizes(Findings(Path()), config)
    names = config.get("architectures")
    stated = config.get("dtype") or config.get("torch_dtype")
    return ConfigFacts(
        architecture=_word(names[0]) if isinstance(names, list) and names else None,
        model_type=_word(config.get("model_type")),
        context_length=sizes["context_length"],
        vocab_size=sizes["vocab_size"],
        n_layers=sizes["n_layers"],
        d_model=sizes["d_model"],
        kv_width=_kv_width(sizes),
        dtype=_word(stated),
        quantization_method=_quantization_method(config),
    )


def refuse_system_folder(path: Path) -> None:
    """Raise :class:`InvalidParameter` for a path in a folder of the operating system, also by way of a link."""
    if sys.platform == "win32":
        return
    for form in (Path(os.path.abspath(path)), Path(os.path.realpath(path))):
        for folder in SYSTEM_FOLDERS:
            if form.is_relative_to(folder):
                raise InvalidParameter(
                    f"{path} lies in {folder}, a folder of the operating system; no model is read from there.",
                    param="local_path",
                    remedy="Put the model into a folder of your own, for example in your home directory.",
                )


def _require_folder(path: Path) -> None:
    findings = Findings(path)
    try:
        if not path.exists():
            findings.add("there is no such folder", _FOLDER)
        elif path.is_dir():
            os.listdir(path)
            # A folder may be listed and still not be entered; asked once here instead of failing at each file.
            os.stat(os.path.join(path, "."))
        else:
            findings.add("it is a file, not a folder", _FOLDER)
    except (OSError, ValueError) as error:
        findings.add(f"it cannot be read: {getattr(error, 'strerror', None) or error}", PERMISSIONS)
    findings.refuse()


def _refuse_other_things(findings: Findings) -> None:
    """Files are opened by their names when a model is loaded: a pipe among them would hold the load for ever."""
    for entry in os.scandir(findings.folder):
        try:
            mode = entry.stat().st_mode
        except OSError:
            continue  # a link that leads nowhere; it is noted where the file is wanted
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            findings.add(f"{entry.name} is no ordinary file", "Remove it from the folder.")


# --- config
# ------------------------------------------------------------------------------------------------------------


def _read_config(findings: Findings) -> dict[str, Any] | None:
    if findings.has("config.json"):
        return findings.read_object("config.json")
    if "config.json" not in findings.dangling:
        findings.add("config.json is missing", _FOLDER)
    return None


def _architecture(findings: Findings, config: Mapping[str, Any]) -> str | None:
    """The checkpoint's class name; raises at once for one that no repair of the folder could help."""
    model_type, names = config.get("model_type"), config.get("architectures")
    if not isinstance(model_type, str) or not model_type:
        findings.add("config.json does not say its model_type", DOWNLOAD_AGAIN)
        return None
    if (
        not isinstance(names, list)
        or not names
        or not isinstance(names[0], str)
        or not names[0].isidentifier()
        or len(names[0]) > MAX_WORD
    ):
        findings.add("config.json names no architecture (its list 'architectures')", DOWNLOAD_AGAIN)
        return None
    check_generative_architecture(model_type, names[0], config)
    return names[0]


_SIZE_NAMES = {
    "context_length": ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "n_ctx"),
    "vocab_size": ("vocab_size",),
    "n_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "d_model": ("hidden_size", "n_embd", "d_model", "n_embed"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "head_dim": ("head_dim",),
}
"""The families' own words for each size, the commonest first."""


_LARGEST_SIZE = 2**53
"""Beyond this a JSON number is no exact size, and no model has one."""


def _sizes(findings: Findings, config: Mapping[str, Any]) -> dict[str, int]:
    """Each size in the config, 0 where it is not stated; a model that also reads images keeps its text sizes inside."""
    inner = config.get("text_config")
    places = [inner, config] if isinstance(inner, dict) else [config]
    sizes: dict[str, int] = {}
    for size, names in _SIZE_NAMES.items():
        stated = [(name, place[name]) for place in places for name in names if place.get(name) is not None]
        name, value = stated[0] if stated else ("", 0)
        sound = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _LARGEST_SIZE
        sizes[size] = value if sound else 0
        # Some families state their heads layer by layer; only the sizes shown to people have to be plain numbers.
        if stated and not sound and size not in ("heads", "kv_heads", "head_dim"):
            findings.add(f"config.json: {name} is {shortened(str(value))}, which is no size", DOWNLOAD_AGAIN)
    return sizes


def _kv_width(sizes: Mapping[str, int]) -> int:
    heads = sizes["heads"]
    width = sizes["head_dim"] or (sizes["d_model"] // heads if heads else 0)
    return (sizes["kv_heads"] or heads) * width


def _quantization_method(config: Mapping[str, Any]) -> str | None:
    stated = config.get("quantization_config")
    method = stated.get("quant_method") if isinstance(stated, dict) else None
    # Cut, not left out: a method nobody knows is refused, and no method at all would not be.
    return method[:MAX_WORD] if isinstance(method, str) and method else None


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= MAX_WORD else None


# --- weights
# -----------------------------------------------------------------------------------------------------------


def _read_weights(findings: Findings) -> list[StoredTensor]:
    if findings.has("model.safetensors"):
        return _read_shard(findings, "model.safetensors")
    if findings.has("model.safetensors.index.json"):
        return _read_shards(findings)
    if not findings.dangling & {"model.safetensors", "model.safetensors.index.json"}:
        _explain_missing_weights(findings)
    return []


def _read_shard(findings: Findings, name: str) -> list[StoredTensor]:
    try:
        return read_header(findings.folder / name)
    except SafetensorsHeaderError as error:
        findings.add(f"{name} {error}", DOWNLOAD_AGAIN)
    except OSError as error:
        findings.add(f"{name} cannot be read: {error.strerror or error}", PERMISSIONS)
    return []


def _read_shards(findings: Findings) -> list[StoredTensor]:
    index_name = "model.safetensors.index.json"
    index = findings.read_object(index_name)
    if index is None:
        return []
    places = index.get("weight_map")
    if (
        not isinstance(places, dict)
        or not places
        or not all(isinstance(shard, str) and Path(shard).name == shard for shard in places.values())
    ):
        findings.add(f"{index_name} does not say which file holds which weights", DOWNLOAD_AGAIN)
        return []
    tensors: list[StoredTensor] = []
    shards: dict[str, set[str]] = {shard: set() for shard in sorted(set(places.values()))}
    for tensor, shard in places.items():
        shards[shard].add(tensor)
    # os.path, which says no for a name that no file can have; pathlib raises for one that is too long.
    missing = {shard: None for shard in shards if not os.path.isfile(findings.folder / shard)}
    if missing:
        named = ", ".join(shard[:MAX_FILE_NAME] for shard in list(missing)[:MOST_NAMED]) + (
            " and others" if len(missing) > MOST_NAMED else ""
        )
        are = plural(len(missing), "is", "are")
        findings.add(f"{len(missing)} of {so_many(len(shards), 'weight file')} {are} missing: {named}", DOWNLOAD_AGAIN)
    for shard, promised in shards.items():
        if shard in missing or not findings.has(shard):
            continue
        found = _read_shard(findings, shard)
        absent = promised - {tensor.name for tensor in found}
        if found and absent:
            lacks = f"lacks {so_many(len(absent), 'tensor')}"
            findings.add(f"{shard} {lacks} that {index_name} places in it", DOWNLOAD_AGAIN)
        tensors += found
    return tensors


def _explain_missing_weights(findings: Findings) -> None:
    names = sorted(os.listdir(findings.folder))
    if "adapter_config.json" in names:
        findings.add(
            "it holds a LoRA adapter, not a whole model",
            "Merge it into its base model with peft (merge_and_unload), save the result, and import that.",
        )
    elif any(name.endswith(".safetensors") and "-of-" in name for name in names):
        findings.add("model.safetensors.index.json is missing, which says what the weight files hold", DOWNLOAD_AGAIN)
    elif any(name.endswith((".bin", ".pt", ".pth", ".ckpt")) for name in names):
        findings.add("its weights are pickle files, which are never read because they can run code", _CONVERT)
    elif any(name.endswith(".gguf") for name in names):
        findings.add("model.safetensors is missing; a GGUF file is there instead", _FOLDER)
    else:
        findings.add("model.safetensors is missing", DOWNLOAD_AGAIN)


def _main_format(tensors: list[StoredTensor]) -> str:
    sizes: dict[str, int] = {}
    for tensor in tensors:
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.nbytes
    main = max(sizes, key=lambda dtype: sizes[dtype])
    return FORMAT_NAMES.get(main, main.lower())


# --- tokenizer and the rest
# --------------------------------------------------------------------------------------------


def _check_tokenizer(findings: Findings) -> bool:
    """Note what the tokenizer lacks; returns whether there is a chat template."""
    config: dict[str, Any] = {}
    if findings.has("tokenizer_config.json"):
        config = findings.read_object("tokenizer_config.json") or {}
    if findings.has("tokenizer.json"):
        _check_tokenizer_file(findings)
    elif findings.has("tokenizer.model"):
        missing = [name for name in ("sentencepiece", "google.protobuf") if not _is_installed(name)]
        if missing:
            findings.add(
                "its tokenizer is a SentencePiece file only (tokenizer.model), which this program has no reader for",
                "Add a tokenizer.json: load the tokenizer in transformers with sentencepiece installed and save it.",
            )
    elif findings.has("vocab.json") and findings.has("merges.txt"):
        findings.read_object("vocab.json")
    elif not findings.dangling & {"tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt"}:
        findings.add(
            "no tokenizer: tokenizer.json, tokenizer.model or vocab.json with merges.txt is needed", _TOKENIZER
        )
    templates = any(findings.has(name) for name in TEMPLATE_FILES)
    return templates or bool(config.get("chat_template"))


def _check_tokenizer_file(findings: Findings) -> None:
    path = findings.folder / "tokenizer.json"
    if findings.files["tokenizer.json"] > PARSED_TOKENIZER_BYTES:
        try:
            with open_file(path) as file:
                first = file.read(64)
                file.seek(-64, os.SEEK_END)
                last = file.read(64)
        except OSError as error:
            findings.add(f"tokenizer.json cannot be read: {error.strerror or error}", PERMISSIONS)
            return
        if not (first.lstrip().startswith(b"{") and last.rstrip().endswith(b"}")):
            findings.add("tokenizer.json is cut short or damaged", DOWNLOAD_AGAIN)
        return
    value = findings.read_object("tokenizer.json")
    model = value.get("model") if value is not None else None
    if value is not None and not (isinstance(model, dict) and model.get("vocab")):
        findings.add("tokenizer.json holds no vocabulary", DOWNLOAD_AGAIN)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _check_optional(findings: Findings) -> None:
    # The end-of-text ids come from these: silently going on without a damaged one would change where answers end.
    for name in ("generation_config.json", "special_tokens_map.json", "added_tokens.json"):
        if findings.has(name):
            findings.read_object(name)


def _pipeline_tag(folder: Path) -> str:
    """What the model card's front matter says the model is for; an embedding model may have a decoder's
    architecture.
    """
    if (folder / "modules.json").is_file() or (folder / "config_sentence_transformers.json").is_file():
        return "sentence-similarity"
    try:
        with open_file(folder / "README.md") as file:
            lines = file.read(16_384).decode("utf-8", "replace").splitlines()
    except OSError:
        return TEXT_GENERATION
    if lines and lines[0].strip() == "---":
        for line in lines[1:]:
            key, _, value = line.partition(":")
            if line.strip() == "---":
                break
            if key == "pipeline_tag" and value.strip().strip("\"'") in NON_GENERATIVE_TAGS:
                return value.strip().strip("\"'")
    return TEXT_GENERATION
