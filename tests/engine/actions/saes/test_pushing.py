"""Whose figures say how long a layer's stream is."""

from __future__ import annotations

from pathlib import Path

from engine.engine import Engine
from tests.conftest import EngineMaker
from tests.made_saes import make_mirror_sae

FIGURES = {
    "l0": 4.0,
    "variance_explained": 0.5,
    "dead_share": 0.25,
    "n_tokens": 90,
    "n_left_out": 10,
    "mean_norm": 21.0,
    "median_norm": 20.0,
}


def test_figures_hold_for_other_files_of_the_same_model_and_for_no_other_layer(
    make_engine: EngineMaker, tmp_path: Path
) -> None:
    engine: Engine = make_engine()
    record, _ = engine.saes.import_local(make_mirror_sae(tmp_path / "m", layer=1, model_name="acme/other"))
    assert record.measured_l0 is None and engine.hand_steering.typical_norm(record.id, 1) is None
    told = engine.measurer.take_figures(record.id, FIGURES, model_name="tiny", repo_id="acme/tiny", layer=1)
    assert (told.measured_l0, told.measured_variance_explained, told.dead_share) == (4.0, 0.5, 0.25)
    assert told.measured_at is None and told.config["d_in"] == 32
    assert told.config["quality"]["verdicts"][-1] == "10 of 100 tokens were left out as attention sinks."
    # Neither the name nor the repository is the resident model's.
    assert engine.hand_steering.typical_norm(record.id, 1) is None
    resident = engine.shelf.resident
    assert resident is not None
    engine.library.models.update(resident.record.id, repo_id="acme/tiny")
    engine.loader.unload().result(60)
    engine.loader.load(resident.record.id).result(60)
    assert engine.hand_steering.typical_norm(record.id, 1) == 20.0
    assert engine.hand_steering.typical_norm(record.id, 2) is None
    # What is measured here outweighs what is told.
    mine = engine.measurer.measure(record.id)
    assert mine.measured_at is not None
    assert engine.measurer.take_figures(record.id, FIGURES, model_name="tiny", repo_id=None, layer=1) == mine
