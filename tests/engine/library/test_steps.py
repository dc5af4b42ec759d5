"""Several changes as one transaction."""

from __future__ import annotations

import pytest

from engine.library.database import Library
from engine.library.errors import ClaimConflict
from engine.library.records import CircuitRecord, ProfileRecord, ServingMode


def test_a_step_sees_its_own_changes_and_nobody_else_does_before_it_ends(library: Library) -> None:
    circuit = library.circuits.add(CircuitRecord("a", "{}"))
    with library.step() as step:
        profile = step.profiles.add(ProfileRecord("calm"))
        step.profiles.set_active(profile.id)
        step.claims.claim(circuit.id, {6: [1]})
        step.circuits.set_active(circuit.id, ServingMode.SLICE_FALLBACK, slice_profile_id=profile.id)
        assert step.profiles.get(profile.id) is not None
        assert [each.layer for each in step.claims.live()] == [6]
        assert library.profiles.get(profile.id) is None
        assert library.claims.live() == []
    active = library.profiles.active()
    assert active is not None and active.id == profile.id
    assert [(each.id, each.slice_profile_id) for each in library.circuits.active()] == [(circuit.id, profile.id)]
    assert [each.layer for each in library.claims.live()] == [6]


def test_a_step_that_fails_leaves_everything_as_it_was(library: Library) -> None:
    first = library.circuits.add(CircuitRecord("a", "{}"))
    second = library.circuits.add(CircuitRecord("b", "{}"))
    calm = library.profiles.add(ProfileRecord("calm"))
    library.profiles.set_active(calm.id)
    library.claims.claim(first.id, {6: [1]})
    before = library.claims.live()

    def fail_late() -> None:
        with library.step() as step:
            step.profiles.deactivate(calm.id)
            step.profiles.add(ProfileRecord("new"))
            step.claims.release(first.id)
            step.claims.claim(first.id, {6: [1], 7: [1]})
            step.claims.claim(second.id, {8: [1], 7: [2]})

    with pytest.raises(ClaimConflict):
        fail_late()
    assert library.claims.live() == before
    assert [(each.name, each.is_active) for each in library.profiles.list()] == [("calm", True)]
