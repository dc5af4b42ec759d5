"""What the program finds when it measures the pack's SAEs on the demo model: ``measured.json`` in the pack.

    python -m assets.demo.build.figures      # a few seconds

The program reads its bundled text once an SAE is attached to a model it was made for, and only then knows how long the
layer's stream is, by which strengths are begun. These figures come with the pack, so that the very first one is right.
"""

from __future__ import annotations

from dataclasses import asdict

import torch

from assets.demo.build.model import Model
from assets.demo.build.settings import Build, from_arguments
from assets.demo.build.shared import load_saes, write_json
from engine.actions.saes.measuring import SEQUENCE, pieces_of
from engine.saes.checks import check_text, measure

NAME = "measured.json"
DIGITS = 6
"""Figures are written with so many digits: the others depend on the machine."""


def run(build: Build) -> str:
    """Measure, and write the figures into the pack; the file's name."""
    model, saes = Model(build), load_saes(build)
    layers = {}
    for layer, sae in saes.items():
        rows = pieces_of(model.ids(check_text()), sae.config.context_size or SEQUENCE)
        stream = torch.cat([model.read([row], [layer])[0][layer][0] for row in rows])
        layers[str(layer)] = {
            name: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
            for name, value in asdict(measure(sae, stream)).items()
        }
    write_json(build.pack / NAME, {"text": "the engine's check text", "layers": layers})
    return NAME


if __name__ == "__main__":
    build = from_arguments(__doc__ or "")
    print(run(build))
