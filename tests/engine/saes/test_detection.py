"""Finding an SAE: several files, folders in folders, orientation of matrices, estimates and digests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.saes.config import SourceFormat
from engine.saes.errors import SaeFormatUnknown, SaeLoadFailed
from engine.saes.formats import FORMATS, detect, estimate_bytes, load_sae
from tests.engine.saes.small import (
    DECODER_WEIGHT,
    ENCODER_WEIGHT,
    LENS,
    THRESHOLD,
    X,
    lens_folder,
    write_npz,
    write_safetensors,
)


def test_file_names_do_not_matter(tmp_path: Path) -> None:
    lens_folder(tmp_path)
    (tmp_path / "sae_weights.safetensors").rename(tmp_path / "anything.bin")
    assert load_sae(tmp_path).encode(X).tolist() == [[2.0, 2.0, 0.0]]


def test_other_weight_files_beside_it_do_not_confuse(tmp_path: Path) -> None:
    lens_folder(tmp_path)
    write_safetensors(tmp_path / "a_first.safetensors", {"mean": [1.0], "matrix": [[1.0]]})
    (tmp_path / "broken.pt").write_bytes(b"\x80\x02nonsense")
    assert detect(tmp_path).files[0].name == "sae_weights.safetensors"


def test_a_damaged_sae_is_not_replaced_by_another_file(tmp_path: Path) -> None:
    lens_folder(tmp_path)
    write_safetensors(tmp_path / "older.safetensors", LENS)
    (tmp_path / "sae_weights.safetensors").write_bytes(b"cut short")
    with pytest.raises(SaeLoadFailed, match="sae_weights"):
        detect(tmp_path)


def test_the_configuration_stands_for_its_folder(tmp_path: Path) -> None:
    lens_folder(tmp_path)
    assert detect(tmp_path / "cfg.json").files[0] == tmp_path / "sae_weights.safetensors"


def test_every_format_has_its_module() -> None:
    assert sorted(known.FORMAT.value for known in FORMATS) == sorted(SourceFormat)
    assert len({known.LABEL for known in FORMATS}) == len(FORMATS)


def test_names_and_descriptions_do_not_import_torch() -> None:
    light = ("ids", "hooks", "path_facts", "config", "errors")
    code = f"import sys; {'; '.join(f'import engine.saes.{name}' for name in light)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_usual_name_wins_among_equals_and_a_tie_is_refused(tmp_path: Path) -> None:
    lens_folder(tmp_path)
    write_safetensors(tmp_path / "older.safetensors", LENS)
    assert detect(tmp_path).files[0].name == "sae_weights.safetensors"
    (tmp_path / "sae_weights.safetensors").rename(tmp_path / "newer.safetensors")
    with pytest.raises(SaeFormatUnknown) as caught:
        detect(tmp_path)
    assert caught.value.details["choices"] == ["newer.safetensors", "older.safetensors"]
    assert detect(tmp_path / "newer.safetensors").config.d_sae == 3


def test_a_single_sae_further_down_is_found_and_several_are_listed(tmp_path: Path) -> None:
    lens_folder(tmp_path / "repo" / "layer_4" / "width_16k")
    assert detect(tmp_path / "repo").folder == tmp_path / "repo" / "layer_4" / "width_16k"
    lens_folder(tmp_path / "repo" / "layer_5" / "width_16k")
    with pytest.raises(SaeFormatUnknown) as caught:
        detect(tmp_path / "repo")
    assert caught.value.details["choices"] == [str(Path("layer_4/width_16k")), str(Path("layer_5/width_16k"))]


def test_bytes_are_estimated_by_the_formula(tmp_path: Path) -> None:
    detected = detect(lens_folder(tmp_path))
    # 2·2·3 + 2 + 3 = 17 values.
    assert estimate_bytes(detected, torch.float32) == 68
    assert estimate_bytes(detected, "float16") == 34
    assert estimate_bytes(detected, torch.bfloat16) == 34
    assert estimate_bytes(detected, "float64") == 136
    assert estimate_bytes(detected, "unheard-of") == 68


def test_the_digest_knows_the_same_sae_elsewhere(tmp_path: Path) -> None:
    first = detect(lens_folder(tmp_path / "one"))
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert detect(tmp_path / "two").digest() == first.digest()
    assert first.size_bytes == sum(path.stat().st_size for path in first.files)
    lens_folder(tmp_path / "two", weights={"b_enc": [0.0, -1.0, 0.25]})
    assert detect(tmp_path / "two").digest() != first.digest()


# --- orientation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [("W_enc",), ("W_dec",), ("W_enc", "W_dec")])
def test_turned_matrices_are_put_right_where_shapes_decide(tmp_path: Path, turned: tuple[str, ...]) -> None:
    other = {"W_enc": ENCODER_WEIGHT, "W_dec": DECODER_WEIGHT}
    sae = load_sae(lens_folder(tmp_path, weights={name: other[name] for name in turned}))
    assert sae.encode(X).tolist() == [[2.0, 2.0, 0.0]]
    assert sae.decoder_row(1).tolist() == [0.0, 2.0]
    assert [line.split()[0] for line in sae.config.assumed] == list(turned)
    assert all("was transposed" in line for line in sae.config.assumed)


def test_a_turned_npz(tmp_path: Path) -> None:
    write_npz(tmp_path / "layer_2" / "params.npz", {**LENS, "W_enc": ENCODER_WEIGHT, "threshold": THRESHOLD})
    assert load_sae(tmp_path / "layer_2").encode(X).tolist() == [[2.0, 0.0, 0.0]]


@pytest.mark.parametrize("shape", [(2, 4), (3, 3), (6,), (1, 2, 3)])
def test_shapes_that_fit_neither_way(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(SaeLoadFailed, match="W_enc has shape"):
        detect(lens_folder(tmp_path, weights={"W_enc": torch.zeros(shape)}))


def square(*, width: int = 40, even_rows: bool = True) -> dict[str, torch.Tensor]:
    """A square SAE like a trained one: columns of W_enc near the rows of W_dec, which have length 1."""
    torch.manual_seed(3)
    rows = torch.nn.functional.normalize(torch.randn(width, width), dim=-1)
    if not even_rows:
        rows = rows * (0.5 + torch.rand(width, 1)) * (0.5 + torch.rand(1, width))
    return {
        "W_dec": rows,
        "W_enc": rows.T + 0.05 * torch.randn(width, width),
        "b_enc": torch.zeros(width),
        "b_dec": torch.zeros(width),
    }


SQUARE_CFG = {"d_in": 40, "d_sae": 40}


def test_square_matrices_in_order_are_judged_by_their_values(tmp_path: Path) -> None:
    weights = square()
    sae = load_sae(lens_folder(tmp_path, SQUARE_CFG, weights))
    assert torch.equal(sae.W_dec, weights["W_dec"])
    assert torch.equal(sae.W_enc, weights["W_enc"])
    assert len(sae.config.assumed) == 1
    assert "correlation" in sae.config.assumed[0]
    assert "kept as the format stores them" in sae.config.assumed[0]


@pytest.mark.parametrize("turned", ["W_enc", "W_dec"])
def test_one_turned_square_matrix_is_found_out(tmp_path: Path, turned: str) -> None:
    weights = square()
    sae = load_sae(lens_folder(tmp_path, SQUARE_CFG, {**weights, turned: weights[turned].T}))
    assert torch.equal(sae.W_dec, weights["W_dec"])
    assert torch.equal(sae.W_enc, weights["W_enc"])
    assert f"{turned} was transposed" in sae.config.assumed[0]


def test_square_matrices_that_do_not_tell_are_refused(tmp_path: Path) -> None:
    torch.manual_seed(4)
    unrelated = {**square(), "W_enc": torch.randn(40, 40)}
    with pytest.raises(SaeLoadFailed, match="do not tell which way"):
        load_sae(lens_folder(tmp_path / "unrelated", SQUARE_CFG, unrelated))
    uneven = square(even_rows=False)
    with pytest.raises(SaeLoadFailed, match="do not tell which way"):
        load_sae(lens_folder(tmp_path / "uneven", SQUARE_CFG, {**uneven, "W_enc": uneven["W_enc"].T}))
