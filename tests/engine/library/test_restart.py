"""What is put right when the program starts again."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from sqlalchemy import text

from engine.library.database import Library
from engine.library.records import (
    CircuitRecord,
    EngineKind,
    ModelRecord,
    ModelSource,
    ModelStatus,
    ProfileRecord,
    SaeRecord,
    SaeSource,
    SaeStatus,
    ServingMode,
)


def in_the_middle_of_things(path: Path) -> None:
    """A library as a program leaves it that dies while everything is going on."""
    with Library.open(path) as library:
        model = library.models.add(ModelRecord("m", ModelSource.LOCAL, EngineKind.TRANSFORMERS))
        library.models.set_status(model.id, ModelStatus.LOADED)
        library.models.update(model.id, locked=True)
        for status in SaeStatus:
            library.saes.add(SaeRecord(status.value, status.value, SaeSource.LOCAL, status=status))
        library.saes.set_status("error", SaeStatus.ERROR, error_message="no network")
        profile = library.profiles.add(ProfileRecord("p", steering={1: 2.0}, intensity=0.5))
        library.profiles.set_active(profile.id)
        for number, name in enumerate(("a", "b")):
            circuit = library.circuits.add(CircuitRecord(name, "{}", intensity=0.8))
            library.claims.claim(circuit.id, {6: [number]}, composed=True)
            library.circuits.set_active(circuit.id, ServingMode.FULL)
        library.circuits.set_active(circuit.id, ServingMode.SLICE_FALLBACK, slice_profile_id=profile.id)


def test_nothing_is_active_after_a_restart(tmp_path: Path) -> None:
    in_the_middle_of_things(tmp_path / "millm.db")
    with Library.open(tmp_path / "millm.db") as library:
        assert library.reset_after_restart() == ()
        (model,) = library.models.list()
        assert (model.status, model.locked) == (ModelStatus.READY, False)
        assert {sae.id: (sae.status, sae.error_message) for sae in library.saes.list()} == {
            "downloading": (SaeStatus.ERROR, "The download was interrupted when the program ended."),
            "cached": (SaeStatus.CACHED, None),
            "attached": (SaeStatus.CACHED, None),
            "error": (SaeStatus.ERROR, "no network"),
        }
        (profile,) = library.profiles.list()
        assert (profile.is_active, profile.intensity, profile.steering) == (False, 0.5, {1: 2.0})
        circuits = {circuit.name: circuit for circuit in library.circuits.list().circuits}
        assert [(c.is_active, c.serving_mode, c.intensity) for c in circuits.values()] == [(False, None, 0.8)] * 2
        assert circuits["b"].slice_profile_id == profile.id
        assert library.claims.live() == []
        # And whoever comes first has the layer for itself.
        (claim,) = library.claims.claim(circuits["b"].id, {6: [1]})
        assert claim.composed is False
        assert library.reset_after_restart() == ()


@pytest.mark.parametrize("part", ["models", "saes", "profiles", "circuits", "claims"])
def test_one_part_that_fails_leaves_the_others_done(
    tmp_path: Path, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    in_the_middle_of_things(tmp_path / "millm.db")
    table = "circuit_claims" if part == "claims" else part
    with Library.open(tmp_path / "millm.db") as library:
        with library._sessions.write() as session:
            session.execute(text(f"ALTER TABLE {table} RENAME TO gone"))
        with caplog.at_level(logging.ERROR):
            assert library.reset_after_restart() == (part,)
        assert f"the {part} in the library" in caplog.text
        with library._sessions.write() as session:
            session.execute(text(f"ALTER TABLE gone RENAME TO {table}"))
        done = {
            "models": not library.models.list()[0].locked,
            "saes": library.saes.get("attached").status is SaeStatus.CACHED,  # type: ignore[union-attr]
            "profiles": library.profiles.active() is None,
            "circuits": library.circuits.active() == [],
            "claims": library.claims.live() == [],
        }
        assert done == {name: name != part for name in done}
        assert library.reset_after_restart() == ()
