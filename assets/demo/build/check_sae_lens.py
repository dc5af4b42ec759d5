"""Shows that sae-lens itself loads the shipped SAEs and encodes the same. Run once, where sae-lens is installed:

    python assets/demo/build/check_sae_lens.py           # in an environment with sae-lens; knows nothing of the engine
    python -m assets.demo.build.check_sae_lens --ours    # in the program's environment, first: writes what to compare

Both see the same random inputs around the SAE's own mean; the second run prints the largest difference.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

PACK = Path(__file__).resolve().parents[1]
TOLERANCE = 2e-3
"""Largest difference allowed, relative to the largest activation."""


def ours(state: Path, saes: list[Path]) -> None:
    """Inputs and what the engine makes of them, for every SAE."""
    from engine.saes.formats.loading import load_sae

    state.mkdir(parents=True, exist_ok=True)
    for folder in saes:
        sae = load_sae(folder, dtype=torch.float32)
        generator = torch.Generator().manual_seed(5)
        # Sums of decoder rows, so that features fire as on real activations.
        codes = torch.zeros(64, sae.config.d_sae)
        picked = torch.randint(sae.config.d_sae, (64, 24), generator=generator)
        codes.scatter_(1, picked, 40 * torch.rand((64, 24), generator=generator))
        x = codes @ sae.W_dec + sae.b_dec + torch.randn((64, sae.config.d_in), generator=generator)
        f = sae.encode(x)
        tensors = {"x": x, "f": f, "x_hat": sae.decode(f, x)}
        save_file({name: each.contiguous() for name, each in tensors.items()}, state / f"{folder.name}.safetensors")
        print(f"{folder.name}: written, L0 {float((f > 0).sum(dim=1).float().mean()):.1f}")


def theirs(state: Path, saes: list[Path]) -> bool:
    """Load with sae-lens, encode, compare; whether all agree."""
    import sae_lens  # type: ignore[import-not-found]
    from sae_lens import SAE

    good = True
    for folder in saes:
        sae = SAE.load_from_disk(folder, device="cpu")
        wanted = load_file(state / f"{folder.name}.safetensors")
        with torch.no_grad():
            f = sae.encode(wanted["x"])
            x_hat = sae.decode(f)
        off_f = float((f.float() - wanted["f"]).abs().max() / wanted["f"].abs().max())
        off_x = float((x_hat.float() - wanted["x_hat"]).abs().max() / wanted["x_hat"].abs().max())
        same = bool(((f > 0) == (wanted["f"] > 0)).all())
        fine = off_f <= TOLERANCE and off_x <= TOLERANCE
        good &= fine
        print(
            f"{folder.name}: sae-lens {sae_lens.__version__}, {type(sae).__name__}, {sae.dtype}: largest difference "
            f"{off_f:.1e} encoded, {off_x:.1e} decoded, same active features: {same}: {'ok' if fine else 'DIFFERENT'}"
        )
    return good


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", action="store_true", help="write the engine's side")
    parser.add_argument("--state", type=Path, default=PACK.parents[1] / ".data" / "demo-build" / "sae-lens")
    given = parser.parse_args()
    saes = sorted((PACK / "saes").glob("layer_*"))
    if given.ours:
        ours(given.state, saes)
        return 0
    return 0 if theirs(given.state, saes) else 1


if __name__ == "__main__":
    sys.exit(main())
