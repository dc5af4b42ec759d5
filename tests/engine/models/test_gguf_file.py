"""GGUF headers, read without llama.cpp: what they say, and that no damage of any kind does more than refuse."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest

from engine.errors import CheckpointInvalid, EngineUnsupported, ModelNotGenerative
from engine.models.inspection.gguf_file import coarse_level, inspect_gguf, label_of, set_of, starts_as_gguf, whole_stem
from tests.gguf_files import build_gguf, quantise
from tests.pipes import pipe


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Path:
    return build_gguf(tiny_checkpoint, tmp_path_factory.mktemp("gguf") / "tiny-F32.gguf", name="Tiny")


@pytest.fixture(scope="session")
def split(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Path:
    folder = tmp_path_factory.mktemp("split")
    return build_gguf(tiny_checkpoint, folder / "tiny-F32.gguf", max_tensors=15)


def problems(path: Path) -> str:
    with pytest.raises(CheckpointInvalid) as caught:
        inspect_gguf(path)
    assert caught.value.param == "local_path" and caught.value.remedy
    return "; ".join(caught.value.details["problems"])


def test_what_a_header_says(whole: Path) -> None:
    report = inspect_gguf(whole)
    assert (report.architecture, report.name, report.label, report.quantization) == ("llama", "Tiny", "F32", "FP32")
    assert (report.context_length, report.n_layers, report.d_model, report.kv_width) == (2048, 4, 32, 16)
    assert (report.params, report.has_chat_template, report.pipeline_tag) == (62_752, True, "text-generation")
    assert report.files == (whole,) and report.disk_size_bytes == whole.stat().st_size
    assert report.vocab_size == 400


def test_the_label_comes_from_the_header_where_the_name_has_none(whole: Path, tmp_path: Path) -> None:
    target = quantise(whole, tmp_path / "anything.gguf", "Q8_0")
    assert (inspect_gguf(target).label, inspect_gguf(target).quantization) == ("Q8_0", "Q8")


def test_no_template(tiny_checkpoint: Path, tmp_path: Path) -> None:
    assert inspect_gguf(build_gguf(tiny_checkpoint, tmp_path / "x.gguf", chat_template=None)).has_chat_template is False


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("smol.Q4_1.gguf", "Q4_1"),
        ("Llama-3.2-1B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("gemma-3-4b-it-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("x-IQ2_XXS.gguf", "IQ2_XXS"),
        ("x-q8_0-00001-of-00003.gguf", "Q8_0"),
        ("x-fp16.gguf", "F16"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("Q4-is-no-end.gguf", None),
        ("qwen2.gguf", None),
    ],
)
def test_labels_in_names(name: str, label: str | None) -> None:
    assert label_of(name) == label


@pytest.mark.parametrize(
    ("label", "level"),
    [
        ("F32", "FP32"),
        ("BF16", "FP16"),
        ("Q8_0", "Q8"),
        ("Q6_K", "Q8"),
        ("Q5_K_M", "Q4"),
        ("Q4_1", "Q4"),
        ("UD-Q4_K_XL", "Q4"),
        ("IQ3_XS", "Q2"),
        ("Q2_K", "Q2"),
        ("TQ1_0", "Q2"),
    ],
)
def test_coarse_levels(label: str, level: str) -> None:
    assert coarse_level(label) == level


def test_the_parts_of_a_set() -> None:
    assert [path.name for path in set_of(Path("/m/a-00002-of-00003.gguf"))] == [
        "a-00001-of-00003.gguf",
        "a-00002-of-00003.gguf",
        "a-00003-of-00003.gguf",
    ]
    assert set_of(Path("/m/a-00004-of-00003.gguf")) == (Path("/m/a-00004-of-00003.gguf"),)
    assert len(set_of(Path("/m/a-00001-of-99999.gguf"))) == 1
    assert whole_stem("a-Q8_0-00001-of-00002.gguf") == "a-Q8_0"


def test_a_split_set(split: Path, whole: Path, tmp_path: Path) -> None:
    report = inspect_gguf(split)
    assert len(report.files) == 3 and report.params == 62_752
    # Any part stands for the set.
    assert inspect_gguf(report.files[2]) == report
    for path in report.files:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / report.files[1].name).unlink()
    assert problems(tmp_path / split.name) == f"{report.files[1].name} is missing"
    (tmp_path / report.files[1].name).write_bytes(report.files[2].read_bytes())
    assert "does not say that it is part 2 of 3" in problems(tmp_path / split.name)
    lonely = tmp_path / "renamed.gguf"
    lonely.write_bytes(split.read_bytes())
    assert "one of 3 parts" in problems(lonely)


def test_every_truncation_is_refused(whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    header = len(data) - 62_752 * 4
    cut = tmp_path / "cut.gguf"
    lengths = {0, 3, 4, 8, 23, 24, header, len(data) - 1} | set(range(25, header, 997))
    for length in sorted(lengths):
        cut.write_bytes(data[:length])
        assert "cut short" in problems(cut), length


def test_no_damage_does_more_than_refuse(whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    damaged, dice = tmp_path / "damaged.gguf", random.Random(7)
    for _ in range(150):
        changed = bytearray(data[:20_000]) + data[20_000:]
        for _ in range(dice.choice((1, 4, 40))):
            changed[dice.randrange(12_000)] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        damaged.write_bytes(changed)
        try:
            inspect_gguf(damaged)
        except (CheckpointInvalid, EngineUnsupported, ModelNotGenerative):
            continue


def header(*entries: tuple[str, int, bytes], tensors: int = 0, version: int = 3, count: int | None = None) -> bytes:
    """A header by hand: each entry a key, the kind of its value and the value."""
    data = b"GGUF" + struct.pack("<IQQ", version, tensors, len(entries) if count is None else count)
    for key, kind, value in entries:
        data += struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value
    return data


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = pipe(tmp_path / "pipe.gguf")
    assert problems(path) == "pipe.gguf is no ordinary file"
    assert starts_as_gguf(path) is False


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cut short"),
        (b"\x80\x04K." * 10, "not a GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (header(version=1), "GGUF version 1"),
        (header(version=99), "GGUF version 99"),
        (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "other order"),
        (header(tensors=2**60), "more than any real file"),
        (header(count=2**62), "more than any real file"),
        (header(("k", 8, struct.pack("<Q", 2**63))), "a text of 9223372036854775808 bytes"),
        (header(("k", 8, struct.pack("<Q", 100))), "cut short"),
        (header(("k", 9, struct.pack("<IQ", 8, 2**61))), "a list of 2305843009213693952"),
        (header(("k", 9, struct.pack("<IQ", 4, 1_000_000))), "cut short"),
        (header(("k", 9, struct.pack("<IQ", 9, 1))), "unknown kind"),
        (header(("k", 77, b"")), "unknown kind"),
        (header(tensors=1) + text("t") + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 0), "gives 't'"),
        (header(tensors=1) + text("t") + struct.pack("<I", 2**31), "dimensions"),
        (header(tensors=1) + text("t") + struct.pack("<IQIQ", 1, 32, 0, 2**63), "cut short"),
        (header(("general.alignment", 4, struct.pack("<I", 0))), "alignment"),
        (header(), "no architecture"),
    ],
)
def test_hostile_headers(data: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    assert words in problems(path)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (8, text("abc")),
        (6, struct.pack("<f", float("nan"))),
        (12, struct.pack("<d", float("inf"))),
        (9, struct.pack("<IQII", 4, 2, 1, 2)),
    ],
    ids=["text", "nan", "infinity", "list"],
)
def test_a_number_of_parts_that_is_none(kind: int, value: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(header(("split.count", kind, value)))
    assert "no architecture" in problems(path)
    assert "parts" not in problems(path)


@pytest.mark.parametrize(
    ("entries", "error"),
    [
        ({"general.type": "adapter", "general.architecture": "llama"}, EngineUnsupported),
        ({"general.type": "mmproj", "general.architecture": "clip"}, ModelNotGenerative),
        ({"general.architecture": "clip"}, ModelNotGenerative),
        ({"general.type": "imatrix"}, ModelNotGenerative),
    ],
)
def test_files_that_hold_no_model(entries: dict[str, str], error: type[Exception], tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(header(*((key, 8, text(value)) for key, value in entries.items())))
    with pytest.raises(error):
        inspect_gguf(path)


def test_an_embedding_model_is_known_as_one(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    entries: list[Any] = [
        ("general.architecture", 8, text("nomic-bert")),
        ("nomic-bert.block_count", 4, struct.pack("<I", 2)),
        ("nomic-bert.embedding_length", 4, struct.pack("<I", 8)),
        ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 1) + text("a")),
    ]
    data = header(*entries, tensors=1) + text("t") + struct.pack("<IQIQ", 1, 32, 0, 0)
    path.write_bytes(data + bytes(32 + 128))
    assert inspect_gguf(path).pipeline_tag == "feature-extraction"


@pytest.mark.parametrize(("kind", "word"), [(24, "I8"), (25, "I16"), (26, "I32"), (27, "I64"), (28, "F64")])
def test_weights_that_are_no_weights(kind: int, word: str, whole: Path, tmp_path: Path) -> None:
    data = bytearray(whole.read_bytes())
    name = b"blk.0.attn_q.weight"
    # Behind a tensor's name: the number of its dimensions, the dimensions, its format.
    struct.pack_into("<I", data, data.index(name) + len(name) + 4 + 2 * 8, kind)
    path = tmp_path / "x.gguf"
    path.write_bytes(data + bytes(1 << 16))
    assert f"no model computes with: 'blk.0.attn_q.weight' ({word})" in problems(path)


def test_a_vocabulary_of_pieces_spells_every_byte(tmp_path: Path) -> None:
    def made(tokens: list[str], kind: str = "llama") -> Path:
        entries: list[Any] = [
            ("general.architecture", 8, text("llama")),
            ("llama.block_count", 4, struct.pack("<I", 2)),
            ("llama.embedding_length", 4, struct.pack("<I", 8)),
            ("tokenizer.ggml.model", 8, text(kind)),
            (
                "tokenizer.ggml.tokens",
                9,
                struct.pack("<IQ", 8, len(tokens)) + b"".join(text(token) for token in tokens),
            ),
        ]
        data = header(*entries, tensors=1) + text("t") + struct.pack("<IQIQ", 1, 32, 0, 0)
        path = tmp_path / "x.gguf"
        path.write_bytes(data + bytes(32 + 128))
        return path

    whole = [f"<0x{number:02X}>" for number in range(256)]
    assert inspect_gguf(made(["<s>", *whole, "the"])).vocab_size == 258
    # A byte may stand for itself; what only looks alike does not.
    assert inspect_gguf(made(["\n", *whole[:10], *whole[11:]])).vocab_size == 256
    assert "no token for 2 of the 256 bytes" in problems(made([*whole[2:], "<0x0a>", "<0x1>", "<0x001>"]))
    assert inspect_gguf(made(["a", "b"], "gpt2")).vocab_size == 2
