"""Which way round a matrix lies. Shapes decide where they can; square matrices are judged by their values.

A trained encoder's columns point roughly along their decoder rows, so two matrices that lie as they should have a high
mean cosine between the two, and a low one when exactly one of them is turned.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.saes.errors import SaeLoadFailed
from engine.saes.formats.draft import StoredMatrix
from engine.saes.formats.weights import WeightsFile


def place_matrices(
    weights: WeightsFile,
    encoder: str,
    decoder: str,
    *,
    d_in: int,
    d_sae: int,
    encoder_turned: bool,
    decoder_turned: bool,
) -> tuple[StoredMatrix, StoredMatrix, list[str]]:
    """Where ``W_enc`` [d_in, d_sae] and ``W_dec`` [d_sae, d_in] lie, and what had to be put right.

    ``encoder_turned`` / ``decoder_turned``: the format itself stores that matrix the other way round. Raises
    :class:`SaeLoadFailed` when a shape fits neither way.
    """
    notes: list[str] = []
    placed = []
    for key, turned, shape in ((encoder, encoder_turned, (d_in, d_sae)), (decoder, decoder_turned, (d_sae, d_in))):
        found = weights.shape(key)
        usual = shape[::-1] if turned else shape
        if d_in == d_sae and found == usual:
            placed.append(StoredMatrix(key, turned, undecided=True))
        elif found == usual:
            placed.append(StoredMatrix(key, turned))
        elif found == usual[::-1]:
            placed.append(StoredMatrix(key, not turned))
            notes.append(f"{key} is stored as {list(found)}, the other way round than usual, and was transposed.")
        else:
            raise SaeLoadFailed(
                f"{weights.path.name}: {key} has shape {list(found)}, where {list(usual)} fits the biases.",
                details={"file": str(weights.path), "tensor": key, "shape": list(found), "wanted": list(usual)},
                remedy="Download the file again; if that does not help, it belongs to another configuration.",
            )
    return placed[0], placed[1], notes


def settle_square(w_enc: Tensor, w_dec: Tensor) -> tuple[Tensor, Tensor, str]:
    """Both matrices the right way round, and what was concluded, for square ones in the format's own layout.

    Raises :class:`SaeLoadFailed` when the values do not tell.
    """
    as_stored, one_turned = _mean_cosine(w_enc, w_dec), _mean_cosine(w_enc.T, w_dec)
    # The mean of d cosines between random vectors of width d scatters by about 1/d.
    margin = max(0.05, 4 / w_enc.shape[0])
    if as_stored - one_turned >= margin:
        return w_enc, w_dec, _conclusion("kept as the format stores them", as_stored, one_turned)
    if one_turned - as_stored >= margin:
        # One of the two is turned. Decoder rows of one length tell which.
        rows, columns = _spread(w_dec), _spread(w_dec.T)
        if rows < 0.05 <= columns:
            return w_enc.T, w_dec, _conclusion("W_enc was transposed", one_turned, as_stored)
        if columns < 0.05 <= rows:
            return w_enc, w_dec.T, _conclusion("W_dec was transposed", one_turned, as_stored)
    raise SaeLoadFailed(
        f"W_enc and W_dec are square ({w_enc.shape[0]} features of that width), and their values do not tell which way "
        f"round they lie (mean cosine {as_stored:.2f} as stored, {one_turned:.2f} with one turned).",
        details={"cosine_as_stored": as_stored, "cosine_one_turned": one_turned},
        remedy="Take one of another width: the source usually has some with more features than the model is wide.",
    )


def _conclusion(done: str, better: float, worse: float) -> str:
    return (
        f"The matrices are square; by the correlation of W_enc columns with W_dec rows they were judged and {done} "
        f"(mean cosine {better:.2f} against {worse:.2f})."
    )


def _mean_cosine(w_enc: Tensor, w_dec: Tensor) -> float:
    return float(torch.cosine_similarity(w_enc.T.float(), w_dec.float(), dim=-1).mean())


def _spread(matrix: Tensor) -> float:
    """How unequal the rows' lengths are: standard deviation over mean."""
    norms = torch.linalg.vector_norm(matrix.float(), dim=-1)
    return float(norms.std() / norms.mean().clamp_min(1e-12))
