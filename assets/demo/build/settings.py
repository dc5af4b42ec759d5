"""What a build makes and where: the full pack, or the same pipeline in a minute on very little (``--test``)."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
PACK = REPOSITORY / "assets" / "demo"

SEED = 20260
"""Every random choice of the build starts here."""


@dataclass(frozen=True)
class Build:
    """One build: its model, sizes and places.

    Args:
        checkpoint: Folder of the model, as ``python -m app demo install`` leaves it.
        state: Working folder; may be deleted, then everything is made anew.
        pack: Where the finished files go.
        layers: Blocks whose output an SAE is trained on, rising.
        d_sae, k: Features of an SAE and how many are active at a token.
        plain_tokens, chat_tokens: Tokens to harvest from packages' texts and from the model's own answers.
        epochs: Passes over what was harvested.
        packages: False takes the short text that is bundled with the engine instead of Debian packages.
    """

    checkpoint: Path
    state: Path
    pack: Path = PACK
    layers: tuple[int, ...] = (10, 15, 20)
    d_sae: int = 3072
    k: int = 32
    plain_tokens: int = 540_000
    chat_tokens: int = 70_000
    epochs: float = 3.0
    packages: bool = True
    threads: int = 1
    labels_per_layer: int = 72
    test: bool = False
    held_out_share: float = 0.06
    seed: int = field(default=SEED)

    @property
    def activations(self) -> Path:
        """Folder of the harvested chunks."""
        return self.state / "activations"

    @property
    def width(self) -> str:
        """How a width is written in names: ``3k``."""
        return f"{self.d_sae // 1024}k" if self.d_sae >= 1024 else str(self.d_sae)

    def sae_id(self, layer: int) -> str:
        """The library's name of a layer's SAE."""
        return f"demo--smollm2-135m-instruct--layer_{layer}--width_{self.width}"

    def sae_folder(self, layer: int) -> Path:
        """Folder of a layer's SAE inside the pack."""
        return self.pack / "saes" / f"layer_{layer}"


MODEL_NAME = "SmolLM2-135M-Instruct"
MODEL_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"


def full_build() -> Build:
    """The build of the shipped pack."""
    data = Path(os.environ.get("MILLM_DATA_DIR", REPOSITORY / ".data"))
    checkpoint = data / "models" / "demo" / "smollm2-135m-instruct" / "checkpoint"
    return Build(checkpoint=checkpoint, state=REPOSITORY / ".data" / "demo-build")


def tiny_build(build: Build, out: Path) -> Build:
    """The same pipeline on a few thousand tokens, everything below ``out``."""
    return replace(
        build,
        state=out / "state",
        pack=out / "pack",
        d_sae=min(build.d_sae, 256),
        k=min(build.k, 8),
        plain_tokens=1_500,
        chat_tokens=300,
        epochs=6.0,
        packages=False,
        labels_per_layer=4,
        test=True,
        held_out_share=0.2,
    )


def from_arguments(description: str) -> Build:
    """The build that the command line asks for."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--test", type=Path, metavar="FOLDER", help="a tiny run, written into FOLDER")
    parser.add_argument("--checkpoint", type=Path, help="folder of the model")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (1)")
    given = parser.parse_args()
    build = replace(full_build(), threads=given.threads)
    if given.checkpoint is not None:
        build = replace(build, checkpoint=given.checkpoint)
    return build if given.test is None else tiny_build(build, given.test)
