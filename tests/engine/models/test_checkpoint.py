"""Checkpoint folders: sound ones are described, damaged ones are refused with every reason at once."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.errors import CheckpointInvalid, EngineUnsupported, InvalidParameter, ModelNotGenerative
from engine.models.inspection import checkpoint as module
from engine.models.inspection.checkpoint import inspect_checkpoint
from tests.pipes import pipe

ROOT = Path(__file__).parents[3]
CheckpointMaker = Callable[..., Path]


@pytest.fixture
def folder(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the tiny Llama that a test may damage."""
    return shutil.copytree(tiny_checkpoint, tmp_path / "tiny")


def edit(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file; ``...`` removes one."""
    value = json.loads(path.read_text())
    for key, change in changes.items():
        if change is ...:
            value.pop(key, None)
        else:
            value[key] = change
    path.write_text(json.dumps(value))


def problems(path: Path) -> list[str]:
    with pytest.raises(CheckpointInvalid) as caught:
        inspect_checkpoint(path)
    error = caught.value
    listed = error.details["problems"]
    assert all(problem in error.message for problem in listed)
    assert error.remedy and error.param == "local_path"
    assert "\n" not in error.one_line()
    return list(listed)


def header_length(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[:8], "little")


def write_safetensors(path: Path, header: Any, data: bytes = b"", *, length: int | None = None) -> None:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + data)


def split_into_shards(folder: Path) -> list[str]:
    """Replace the single weight file by three shards with an index, as large models have them."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards, places = [], {}
    for number in range(3):
        shard = f"model-{number + 1:05d}-of-00003.safetensors"
        part = {name: tensors[name] for name in names[number::3]}
        save_file(part, folder / shard)
        places.update(dict.fromkeys(part, shard))
        shards.append(shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return shards


# --- sound folders -----------------------------------------------------------------------------------------------------


def test_a_sound_checkpoint_is_described(tiny_checkpoint: Path) -> None:
    report = inspect_checkpoint(tiny_checkpoint)
    assert report.path == tiny_checkpoint
    assert (report.architecture, report.model_type) == ("LlamaForCausalLM", "llama")
    assert (report.context_length, report.vocab_size, report.n_layers, report.d_model) == (2048, 400, 4, 32)
    # Embedding and head 2 × 400 × 32; a layer: q, o 2 × 32 × 32, k, v 2 × 32 × 16, MLP 3 × 32 × 64, norms 2 × 32; last norm 32.
    assert report.params == 2 * 12_800 + 4 * (2_048 + 1_024 + 6_144 + 64) + 32 == 62_752
    assert report.dtype == "float32"
    assert report.estimated_memory_bytes == 301_209  # 62,752 × 4 bytes × 1.2
    assert report.disk_size_bytes == sum(path.stat().st_size for path in tiny_checkpoint.iterdir())
    assert report.kv_width == 16  # 2 heads × 8
    assert report.has_chat_template
    assert report.quantization_method is None
    assert report.pipeline_tag == "text-generation"


@pytest.mark.parametrize(
    ("family", "architecture", "model_type", "kv_width"),
    [
        ("qwen2", "Qwen2ForCausalLM", "qwen2", 16),
        ("qwen3", "Qwen3ForCausalLM", "qwen3", 16),
        ("mistral", "MistralForCausalLM", "mistral", 16),
        ("phi3", "Phi3ForCausalLM", "phi3", 16),
        ("gemma2", "Gemma2ForCausalLM", "gemma2", 16),
        ("gemma3", "Gemma3ForCausalLM", "gemma3_text", 16),
        ("olmo2", "Olmo2ForCausalLM", "olmo2", 16),
        ("gpt2", "GPT2LMHeadModel", "gpt2", 32),
        ("gpt-neox", "GPTNeoXForCausalLM", "gpt_neox", 32),
    ],
)
def test_families(checkpoint: CheckpointMaker, family: str, architecture: str, model_type: str, kv_width: int) -> None:
    report = inspect_checkpoint(checkpoint(family))
    assert (report.architecture, report.model_type) == (architecture, model_type)
    assert (report.context_length, report.vocab_size, report.n_layers, report.d_model) == (2048, 400, 4, 32)
    assert report.kv_width == kv_width


def test_a_folder_of_links_as_the_hub_cache_has_it(tiny_checkpoint: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, source in enumerate(sorted(tiny_checkpoint.iterdir())):
        shutil.copy(source, blobs / str(number))
        (snapshot / source.name).symlink_to(Path("../../blobs") / str(number))
    report = inspect_checkpoint(snapshot)
    assert report.params == 62_752
    assert report.disk_size_bytes == sum(path.stat().st_size for path in blobs.iterdir())
    (snapshot / "model.safetensors").resolve().unlink()
    assert problems(snapshot) == ["model.safetensors is a link to a file that is not there"]


def test_shards_count_as_one_model(folder: Path) -> None:
    split_into_shards(folder)
    assert inspect_checkpoint(folder).params == 62_752


def test_other_tokenizer_forms(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text('{"a": 0}')
    assert problems(folder) == [
        "no tokenizer: tokenizer.json, tokenizer.model or vocab.json with merges.txt is needed",
    ]
    (folder / "merges.txt").write_text("#version: 0.2\n")
    inspect_checkpoint(folder)
    (folder / "vocab.json").write_text('{"a": ')
    assert problems(folder) == ["vocab.json is not valid JSON"]


def test_a_sentencepiece_tokenizer_needs_its_reader(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tokenizer.json").rename(folder / "tokenizer.model")
    monkeypatch.setattr(module, "_is_installed", lambda name: name == "sentencepiece")
    assert problems(folder) == [
        "its tokenizer is a SentencePiece file only (tokenizer.model), which this program has no reader for"
    ]
    monkeypatch.setattr(module, "_is_installed", lambda name: True)
    inspect_checkpoint(folder)


def test_chat_templates_are_noticed_wherever_they_are(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    assert not inspect_checkpoint(folder).has_chat_template
    edit(folder / "tokenizer_config.json", chat_template="{{ messages }}")
    assert inspect_checkpoint(folder).has_chat_template


def test_sizes_of_a_model_that_also_reads_images(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    outer = {
        "model_type": "gemma3",
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": {**config, "model_type": "gemma3_text", "max_position_embeddings": 131_072},
    }
    (folder / "config.json").write_text(json.dumps(outer))
    report = inspect_checkpoint(folder)
    assert (report.context_length, report.n_layers, report.kv_width) == (131_072, 4, 16)


def test_sizes_that_are_not_stated(folder: Path) -> None:
    edit(folder / "config.json", max_position_embeddings=..., head_dim=..., num_key_value_heads=None)
    report = inspect_checkpoint(folder)
    assert report.context_length == 2048
    assert report.kv_width == 32
    edit(folder / "config.json", num_attention_heads=..., vocab_size=...)
    report = inspect_checkpoint(folder)
    assert (report.kv_width, report.vocab_size) == (0, 0)


def test_the_method_of_a_quantised_checkpoint(folder: Path) -> None:
    edit(folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    assert inspect_checkpoint(folder).quantization_method == "gptq"


def test_masks_stored_beside_the_weights_are_no_parameters(folder: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mask"] = torch.ones(1000, dtype=torch.uint8)
    save_file(tensors, folder / "model.safetensors")
    assert inspect_checkpoint(folder).params == 62_752


@pytest.mark.parametrize(
    ("card", "tag"),
    [
        ("---\nlicense: mit\npipeline_tag: feature-extraction\n---\n# A", "feature-extraction"),
        ('---\npipeline_tag: "text-classification"\n---\n', "text-classification"),
        ("---\npipeline_tag: text-generation\n---\n", "text-generation"),
        ("---\nlicense: mit\n---\npipeline_tag: feature-extraction\n", "text-generation"),
        ("# pipeline_tag: feature-extraction\n", "text-generation"),
        ("", "text-generation"),
    ],
)
def test_the_model_card_says_what_it_is_for(folder: Path, card: str, tag: str) -> None:
    (folder / "README.md").write_text(card)
    assert inspect_checkpoint(folder).pipeline_tag == tag


def test_an_embedding_model_with_a_decoders_architecture(folder: Path) -> None:
    (folder / "modules.json").write_text("[]")
    assert inspect_checkpoint(folder).pipeline_tag == "sentence-similarity"


def test_torch_is_not_imported(tiny_checkpoint: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from engine.models.inspection.checkpoint import inspect_checkpoint;"
        "inspect_checkpoint(Path(sys.argv[1])); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tiny_checkpoint)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.returncode) == ("False\n", 0)


# --- what is missing or damaged ----------------------------------------------------------------------------------------


def test_an_empty_folder_lacks_everything_at_once(tmp_path: Path) -> None:
    assert problems(tmp_path) == [
        "config.json is missing",
        "model.safetensors is missing",
        "no tokenizer: tokenizer.json, tokenizer.model or vocab.json with merges.txt is needed",
    ]


def test_no_folder_or_no_folder_at_all(tmp_path: Path) -> None:
    assert problems(tmp_path / "nowhere") == ["there is no such folder"]
    assert problems(tmp_path / "nowhere.gguf") == ["there is no such folder"]
    (tmp_path / "file.txt").touch()
    assert problems(tmp_path / "file.txt") == ["it is a file, not a folder"]
    assert problems(tmp_path / ("x" * 300)) == ["it cannot be read: File name too long"]


def test_every_problem_is_listed(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    (folder / "tokenizer.json").write_text("[]")
    (folder / "generation_config.json").write_text("")
    (folder / "tokenizer_config.json").write_bytes(b"\xff\xfe{\0}\0")
    os.truncate(folder / "model.safetensors", 200_000)
    size = 8 + header_length(folder / "model.safetensors") + 62_752 * 4
    assert problems(folder) == [
        "config.json is not valid JSON",
        f"model.safetensors is cut short: {size - 200_000} of {size} bytes are missing",
        "tokenizer_config.json is not valid JSON",
        "tokenizer.json is not a JSON object",
        "generation_config.json is not valid JSON",
    ]


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"])
def test_a_nesting_bomb_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_text('{"a": ' + "[" * 2_000_000)
    assert problems(folder) == [f"{name} is nested too deeply"]


def test_a_file_too_large_to_be_a_config_is_not_read(folder: Path) -> None:
    with (folder / "config.json").open("r+b") as file:
        file.truncate(5_000_000_000)
    assert problems(folder) == ["config.json is larger than 64 MB"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model_type": ...}, "config.json does not say its model_type"),
        ({"model_type": 3}, "config.json does not say its model_type"),
        ({"architectures": ...}, "config.json names no architecture (its list 'architectures')"),
        ({"architectures": []}, "config.json names no architecture (its list 'architectures')"),
        ({"architectures": "LlamaForCausalLM"}, "config.json names no architecture (its list 'architectures')"),
        ({"architectures": ["\ud800"]}, "config.json names no architecture (its list 'architectures')"),
        ({"hidden_size": "many"}, "config.json: hidden_size is 'many', which is no size"),
        ({"vocab_size": True}, "config.json: vocab_size is 'True', which is no size"),
        ({"num_hidden_layers": 0}, "config.json: num_hidden_layers is '0', which is no size"),
        ({"max_position_embeddings": 10**30}, f"config.json: max_position_embeddings is '{10**30}', which is no size"),
    ],
)
def test_configs_that_make_no_sense(folder: Path, changes: dict[str, Any], problem: str) -> None:
    edit(folder / "config.json", **changes)
    assert problems(folder) == [problem]


def test_missing_and_cut_shards_are_named(folder: Path) -> None:
    first, second, third = split_into_shards(folder)
    (folder / first).unlink()
    os.truncate(folder / second, (folder / second).stat().st_size - 10)
    size = (folder / second).stat().st_size + 10
    assert problems(folder) == [
        f"1 of 3 weight files is missing: {first}",
        f"{second} is cut short: 10 of {size} bytes are missing",
    ]
    (folder / second).unlink()
    assert problems(folder) == [f"2 of 3 weight files are missing: {first}, {second}"]
    assert third


def test_a_shard_in_anothers_place_is_noticed(folder: Path) -> None:
    first, second, _third = split_into_shards(folder)
    shutil.copy(folder / second, folder / first)
    (problem,) = problems(folder)
    assert problem.startswith(f"{first} lacks 13 tensors")


@pytest.mark.parametrize(
    "index",
    ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', '{"weight_map": {"a": "../../etc/passwd"}}'],
)
def test_a_damaged_index(folder: Path, index: str) -> None:
    split_into_shards(folder)
    (folder / "model.safetensors.index.json").write_text(index)
    (problem,) = problems(folder)
    assert problem.startswith("model.safetensors.index.json ")


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("pytorch_model.bin", "its weights are pickle files, which are never read because they can run code"),
        ("consolidated.00.pth", "its weights are pickle files, which are never read because they can run code"),
        ("adapter_config.json", "it holds a LoRA adapter, not a whole model"),
        ("model.gguf", "model.safetensors is missing; a GGUF file is there instead"),
        (
            "model-00001-of-00002.safetensors",
            "model.safetensors.index.json is missing, which says what the weight files hold",
        ),
        ("notes.txt", "model.safetensors is missing"),
    ],
)
def test_weights_in_another_form(folder: Path, file: str, problem: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / file).touch()
    assert problems(folder) == [problem]


def test_pickle_weights_come_with_the_way_out(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointInvalid) as caught:
        inspect_checkpoint(folder)
    assert "Convert the weights to safetensors" in (caught.value.remedy or "")


GOOD = {"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}


@pytest.mark.parametrize(
    ("header", "data", "problem"),
    [
        (GOOD, b"\0" * 15, "is cut short: 1 of 89 bytes are missing"),
        (GOOD, b"\0" * 20, "has 4 bytes too many after its last tensor"),
        ({}, b"", "holds no tensors"),
        ({"__metadata__": {"format": "pt"}}, b"", "holds no tensors"),
        (b"[]", b"", "has a header that is no JSON object"),
        (b"{", b"", "has a header that cannot be read"),
        (b"\xff", b"", "has a header that cannot be read"),
        (b'{"a":' * 100_000, b"", "has a header that cannot be read"),
        ({"a": 1}, b"", "has a damaged header at the tensor 'a'"),
        ({"a": {**GOOD["a"], "dtype": "F31"}}, b"\0" * 16, "holds the tensor 'a' in an unknown number format, 'F31'"),
        ({"a": {**GOOD["a"], "shape": [2, -2]}}, b"\0" * 16, "has a damaged shape at the tensor 'a'"),
        ({"a": {**GOOD["a"], "shape": 4}}, b"\0" * 16, "has a damaged shape at the tensor 'a'"),
        ({"a": {**GOOD["a"], "data_offsets": [16, 0]}}, b"\0" * 16, "has damaged offsets at the tensor 'a'"),
        ({"a": {**GOOD["a"], "data_offsets": [0]}}, b"\0" * 16, "has damaged offsets at the tensor 'a'"),
        (
            {"a": {**GOOD["a"], "shape": [2, 3]}},
            b"\0" * 16,
            "has a damaged header: the tensor 'a' does not fill its place",
        ),
        (
            {**GOOD, "b": {**GOOD["a"], "data_offsets": [8, 24]}},
            b"\0" * 24,
            "has a damaged header: its tensors overlap or leave gaps",
        ),
    ],
)
def test_damaged_weight_files(folder: Path, header: Any, data: bytes, problem: str) -> None:
    write_safetensors(folder / "model.safetensors", header, data)
    assert problems(folder) == [f"model.safetensors {problem}"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is cut short: it has 0 bytes, not even the length of a header"),
        (b"\x01\x02\x03", "is cut short: it has 3 bytes, not even the length of a header"),
        (struct.pack("<Q", 1000) + b"{", "is cut short within its header: 999 bytes are missing there"),
        (b"PK\x03\x04 not weights at all", "is not a safetensors file"),
        (b"\0" * 1000, "has a header that cannot be read"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 269060552\n",
            "is a Git LFS pointer: the weights themselves were never downloaded",
        ),
    ],
)
def test_weight_files_that_are_something_else(folder: Path, content: bytes, problem: str) -> None:
    (folder / "model.safetensors").write_bytes(content)
    assert problems(folder) == [f"model.safetensors {problem}"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{}", "tokenizer.json holds no vocabulary"),
        ('{"model": {"vocab": {}}}', "tokenizer.json holds no vocabulary"),
        ("", "tokenizer.json is not valid JSON"),
        (
            "version https://git-lfs.github.com/spec/v1\n",
            "tokenizer.json is a Git LFS pointer: the file itself was never downloaded",
        ),
    ],
)
def test_damaged_tokenizers(folder: Path, content: str, problem: str) -> None:
    (folder / "tokenizer.json").write_text(content)
    assert problems(folder) == [problem]


def test_a_large_tokenizer_is_looked_at_from_both_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARSED_TOKENIZER_BYTES", 1000)
    inspect_checkpoint(folder)
    os.truncate(folder / "tokenizer.json", (folder / "tokenizer.json").stat().st_size - 5)
    assert problems(folder) == ["tokenizer.json is cut short or damaged"]


@pytest.mark.parametrize("name", ["README.md", "chat_template.jinja", "config.json", "tokenizer.json", "anything"])
def test_a_pipe_is_not_waited_for(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    pipe(folder / name)
    assert f"{name} is no ordinary file" in problems(folder)
    (folder / name).unlink()
    (folder / name).symlink_to(pipe(folder.parent / "pipe"))
    assert f"{name} is no ordinary file" in problems(folder)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="permissions do not bind root")
def test_files_that_may_not_be_read(folder: Path) -> None:
    (folder / "config.json").chmod(0)
    assert problems(folder) == ["config.json cannot be read: Permission denied"]


# --- what no repair helps ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "not made to write text"),
        ({"model_type": "bert", "architectures": ["BertLMHeadModel"]}, "is an encoder"),
        ({"model_type": "llama", "architectures": ["LlamaForSequenceClassification"]}, "not made to write text"),
        ({"model_type": "llama", "architectures": ["LlamaModel"]}, "not made to write text"),
        (
            {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True},
            "encoder-decoder",
        ),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, "not made to write text"),
    ],
)
def test_models_that_cannot_write(folder: Path, changes: dict[str, Any], words: str) -> None:
    edit(folder / "config.json", **changes)
    (folder / "tokenizer.json").unlink()  # the folder's other faults do not matter then
    with pytest.raises(ModelNotGenerative, match=words) as caught:
        inspect_checkpoint(folder)
    assert caught.value.param == "model" and caught.value.remedy


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "made_up", "architectures": ["MadeUpForCausalLM"]}, "not known to the installed transformers"),
        (
            {
                "model_type": "made_up",
                "architectures": ["MadeUpForCausalLM"],
                "auto_map": {"AutoModelForCausalLM": "modeling.MadeUp"},
            },
            "Python code of its own",
        ),
        (
            {
                "model_type": "qwen2_vl",
                "architectures": ["Qwen2VLForConditionalGeneration"],
                "text_config": {"hidden_size": 32},
            },
            "images or sound",
        ),
    ],
)
def test_models_this_engine_cannot_run(folder: Path, changes: dict[str, Any], words: str) -> None:
    edit(folder / "config.json", **changes)
    with pytest.raises(EngineUnsupported, match=words) as caught:
        inspect_checkpoint(folder)
    assert caught.value.remedy


def test_a_gguf_file_is_no_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "smol.Q4_1.gguf"
    file.write_bytes(b"GGUF")
    assert problems(file) == ["it is a file, not a folder"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX paths")
@pytest.mark.parametrize(
    "path", ["/etc", "/etc/ssl", "/proc/self", "/sys", "/dev/shm/model", "/run/x", "/var/run/x", "/boot"]
)
def test_system_folders_are_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="operating system") as caught:
        inspect_checkpoint(Path(path))
    assert caught.value.param == "local_path"
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(InvalidParameter, match="operating system"):
        inspect_checkpoint(tmp_path / "link")


def test_folders_that_only_sound_like_system_folders(folder: Path) -> None:
    inspect_checkpoint(Path(shutil.copytree(folder, folder.parent / "etc")))


def test_only_known_causal_models_are_let_in() -> None:
    """Against the library's own tables, which need torch: what it can load for text is let in, but for these."""
    from transformers.models.auto import modeling_auto as tables

    from engine.models.inspection.architecture import (
        ENCODER_FAMILIES,
        TEXT_INSIDE,
        WITHOUT_CACHE,
        check_generative_architecture,
    )

    refused = set()
    for model_type, name in tables.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        config = {"text_config": {}} if model_type in TEXT_INSIDE else {}
        try:
            check_generative_architecture(model_type, name, config)
        except (ModelNotGenerative, EngineUnsupported):
            refused.add(model_type)
    assert refused - ENCODER_FAMILIES - WITHOUT_CACHE == {
        "bert-generation",
        "got_ocr2",
        "gpt-sw3",  # a name of the tokenizer's; its checkpoints say gpt2
        "moss_transcribe_diarize",
    }
    for family in ("MASKED_LM", "SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION", "SEQ_TO_SEQ_CAUSAL_LM"):
        for model_type, name in getattr(tables, f"MODEL_FOR_{family}_MAPPING_NAMES").items():
            with pytest.raises((ModelNotGenerative, EngineUnsupported)):
                check_generative_architecture(model_type, name, {})
