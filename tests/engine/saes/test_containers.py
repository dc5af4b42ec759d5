"""Weight files from anywhere: cut, damaged, hostile. Each gets its refusal, and no code in a file is ever run."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.saes.errors import SaeFormatUnknown, SaeLoadFailed
from engine.saes.formats import detect, load_sae
from engine.saes.formats.configs import read_config
from engine.saes.formats.weights import open_weights
from tests.engine.saes.small import (
    B_DEC,
    LENS,
    THRESHOLD,
    lens_folder,
    write_json,
    write_npz,
    write_safetensors,
    write_torch,
)
from tests.engine.saes.sources import LINEAR, dictionary


class Touch:
    """Unpickling it creates a file: the trace by which running code would show."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.trace), "w"))


def hostile_files(folder: Path, trace: Path) -> dict[str, bytes]:
    """The ways a pickle can come in: bare, in torch's zip, in torch's zip inside a dict, and as an npz of objects."""
    bomb = pickle.dumps({"encoder.weight": Touch(trace)}, protocol=2)
    inside = io.BytesIO()
    torch.save({"encoder.weight": torch.zeros(3, 2), "settings": Touch(trace)}, inside)
    old = io.BytesIO()
    torch.save({"settings": Touch(trace)}, old, _use_new_zipfile_serialization=False)
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("archive/data.pkl", bomb)
        archive.writestr("archive/version", "3\n")
    objects = io.BytesIO()
    np.savez(objects, W_enc=np.array([Touch(trace)], dtype=object), allow_pickle=True)
    return {
        "bare.pt": bomb,
        "inside.pt": inside.getvalue(),
        "old.pt": old.getvalue(),
        "zipped.pt": zipped.getvalue(),
        "objects.npz": objects.getvalue(),
    }


@pytest.mark.parametrize("name", ["bare.pt", "inside.pt", "old.pt", "zipped.pt", "objects.npz"])
def test_code_in_a_file_is_never_run(tmp_path: Path, name: str) -> None:
    trace = tmp_path / "it-ran"
    content = hostile_files(tmp_path, trace)[name]
    pickle_runs = tmp_path / "proof"
    pickle.loads(pickle.dumps(Touch(pickle_runs))).close()
    assert pickle_runs.exists(), "the bomb itself works"
    folder = tmp_path / "sae"
    folder.mkdir()
    (folder / name).write_bytes(content)
    write_json(folder / "config.json", {"trainer": {"dict_class": "AutoEncoder"}})
    for path in (folder, folder / name):
        for call in (detect, load_sae):
            with pytest.raises(SaeLoadFailed) as caught:
                call(path)
            assert "It was not run and nothing was loaded" in caught.value.message
            assert caught.value.details["unsafe"] is True
    assert not trace.exists()


def test_a_hostile_dictionary_is_refused_whole(tmp_path: Path) -> None:
    trace = tmp_path / "it-ran"
    folder = dictionary(tmp_path / "sae", "AutoEncoder", {**LINEAR, "bias": B_DEC, "log": Touch(trace)})
    with pytest.raises(SaeLoadFailed, match="open"):
        load_sae(folder)
    assert not trace.exists()


def test_a_truncated_safetensors_file(tmp_path: Path) -> None:
    folder = lens_folder(tmp_path)
    file = folder / "sae_weights.safetensors"
    whole = file.read_bytes()
    for length in (0, 4, 8, 40, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(SaeLoadFailed) as caught:
            load_sae(folder)
        assert "sae_weights.safetensors" in caught.value.message
    file.write_bytes(whole)
    assert load_sae(folder).config.d_sae == 3


def test_a_safetensors_header_that_lies(tmp_path: Path) -> None:
    folder = lens_folder(tmp_path)
    header = json.dumps({"W_enc": {"dtype": "F32", "shape": [1 << 40, 2], "data_offsets": [0, 8]}}).encode()
    (folder / "sae_weights.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 8)
    with pytest.raises(SaeLoadFailed, match="damaged"):
        detect(folder)
    (folder / "sae_weights.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + b"{}")
    with pytest.raises(SaeLoadFailed, match="damaged"):
        detect(folder)


def test_a_pointer_left_by_git_lfs(tmp_path: Path) -> None:
    folder = lens_folder(tmp_path)
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
    (folder / "sae_weights.safetensors").write_bytes(pointer)
    with pytest.raises(SaeLoadFailed, match="Git LFS pointer"):
        detect(folder)


def test_a_damaged_npz(tmp_path: Path) -> None:
    file = write_npz(tmp_path / "layer_1" / "params.npz", {**LENS, "threshold": THRESHOLD})
    whole = file.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-10], b"PK\x03\x04" + b"\0" * 60):
        file.write_bytes(content)
        with pytest.raises(SaeLoadFailed):
            load_sae(file.parent)
    flipped = bytearray(whole)
    flipped[whole.index(np.float32(0.5).tobytes() * 2)] ^= 0xFF
    file.write_bytes(bytes(flipped))
    with pytest.raises(SaeLoadFailed, match="damaged"):
        load_sae(file.parent)


def test_an_npz_that_claims_or_expands_too_much(tmp_path: Path) -> None:
    file = tmp_path / "params.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 4)})
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("W_enc.npy", header.getvalue() + b"\0" * 64)
    with pytest.raises(SaeLoadFailed, match="claims"):
        open_weights(file)
    np.savez_compressed(file, W_enc=np.zeros((2000, 2000), dtype=np.float32))
    with pytest.raises(SaeLoadFailed, match="200-fold"):
        open_weights(file)


def test_a_tensor_that_repeats_memory(tmp_path: Path) -> None:
    file = write_torch(tmp_path / "ae.pt", {"W_enc": torch.zeros(1).expand(1 << 20, 1 << 20)})
    with pytest.raises(SaeLoadFailed, match="more values than are stored"):
        open_weights(file)


def test_a_damaged_torch_file(tmp_path: Path) -> None:
    folder = dictionary(tmp_path, "AutoEncoder", {**LINEAR, "bias": B_DEC})
    whole = (folder / "ae.pt").read_bytes()
    for content in (whole[: len(whole) // 2], b"\x80\x02garbage", b"PK\x03\x04 no zip at all"):
        (folder / "ae.pt").write_bytes(content)
        with pytest.raises(SaeLoadFailed):
            load_sae(folder)


def test_a_torch_file_of_something_else(tmp_path: Path) -> None:
    torch.save([torch.zeros(3)], tmp_path / "list.pt")
    with pytest.raises(SaeLoadFailed, match="holds a list"):
        detect(tmp_path / "list.pt")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["W_enc", "W_dec", "b_enc", "b_dec"])
def test_values_that_are_no_numbers(tmp_path: Path, name: str, value: float) -> None:
    spoiled = torch.tensor(LENS[name])
    spoiled.view(-1)[1] = value
    with pytest.raises(SaeLoadFailed, match=f"NaN or infinite values in {name}"):
        load_sae(lens_folder(tmp_path, weights={name: spoiled}))


def test_values_too_large_for_half_precision(tmp_path: Path) -> None:
    lens_folder(tmp_path, weights={"W_dec": [[1e6, 0.0], [0.0, 2.0], [0.5, 0.5]]})
    assert load_sae(tmp_path).decoder_row(0).tolist() == [1e6, 0.0]
    with pytest.raises(SaeLoadFailed, match="too large for float16"):
        load_sae(tmp_path, dtype=torch.float16)


def test_whole_numbers_are_no_weights(tmp_path: Path) -> None:
    lens_folder(tmp_path, weights={"W_dec": torch.ones(3, 2, dtype=torch.int8)})
    with pytest.raises(SaeLoadFailed, match="i8"):
        load_sae(tmp_path)
    lens_folder(tmp_path, weights={"b_enc": torch.ones(3, dtype=torch.int32)})
    with pytest.raises(SaeLoadFailed, match=r"b_enc as torch\.int32"):
        load_sae(tmp_path)


def test_loading_does_not_hold_or_share_the_file(tmp_path: Path) -> None:
    folder = lens_folder(tmp_path)
    sae = load_sae(folder)
    write_safetensors(folder / "sae_weights.safetensors", {name: torch.zeros(2) for name in ("a", "b")})
    assert sae.decoder_row(1).tolist() == [0.0, 2.0]


# --- configurations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"{", "not valid JSON"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b"[1, 2]", "does not hold a JSON object"),
        (b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}", "nested more than 32 levels"),
        (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested more than 32 levels"),
        (b'{"a": "' + b"x" * (1 << 20) + b'"}', "larger than 1 MiB"),
        (b'{"d_in": ' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
)
def test_configurations_from_anywhere(tmp_path: Path, content: bytes, named: str) -> None:
    (tmp_path / "cfg.json").write_bytes(content)
    with pytest.raises(SaeLoadFailed, match=named):
        read_config(tmp_path / "cfg.json")


def test_numbers_that_are_none_are_refused_where_they_are_used(tmp_path: Path) -> None:
    (tmp_path / "cfg.json").write_text('{"l0": NaN, "k": 1e999, "d_in": true, "note": "kept"}', encoding="utf-8")
    config = read_config(tmp_path / "cfg.json")
    assert config.text("note") == "kept"
    for name in ("l0", "k", "d_in"):
        with pytest.raises(SaeLoadFailed, match=name):
            config.number(name)


def test_nothing_there_and_nothing_known(tmp_path: Path) -> None:
    with pytest.raises(SaeFormatUnknown, match="nothing at"):
        detect(tmp_path / "absent")
    with pytest.raises(SaeFormatUnknown, match="No weight file"):
        detect(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", {"lm_head.weight": [[1.0]]})
    with pytest.raises(SaeFormatUnknown) as caught:
        detect(tmp_path)
    assert caught.value.details["tensors"] == {"model.safetensors": ["lm_head.weight"]}
