from __future__ import annotations

import pytest

from engine.documents.binding import AttachedSae, SaeReference
from engine.errors import InvalidParameter, MillmError, SaeNotAttached
from engine.saes.errors import InvalidFeatureIndex
from engine.steering.targets import bound_for_request, require_indices

A6 = AttachedSae("a", 6, 100, 16)
B9 = AttachedSae("b", 9, 200, 16)


def test_a_request_with_nothing_attached_runs_unsteered() -> None:
    assert bound_for_request(SaeReference("a", 6), [], what="the profile 'calm'", param="profile") is None


def test_a_request_gets_its_sae() -> None:
    assert bound_for_request(SaeReference("x", 9), [B9], what="the profile 'calm'", param="profile") == B9


@pytest.mark.parametrize(
    ("reference", "attached", "error", "words"),
    [
        (SaeReference("a", 6), [B9], SaeNotAttached, "no SAE is attached at layer 6. Attached: 'b' at layer 9."),
        (SaeReference("x"), [B9], SaeNotAttached, "'x' is not attached"),
        (SaeReference(), [A6, B9], InvalidParameter, "'a' at layer 6, 'b' at layer 9"),
        (SaeReference("b", 9, 100), [B9], InvalidFeatureIndex, "100 features and 'b' at layer 9 has 200"),
    ],
)
def test_a_request_that_cannot_be_bound_is_refused(
    reference: SaeReference, attached: list[AttachedSae], error: type[MillmError], words: str
) -> None:
    with pytest.raises(error) as caught:
        bound_for_request(reference, attached, what="the profile 'calm'", param="profile")
    assert caught.value.message.startswith("The profile 'calm' cannot run: ")
    assert words in caught.value.message
    assert caught.value.param == "profile"
    assert caught.value.details["attached"] == [{"sae_id": each.sae_id, "layer": each.layer} for each in attached]


def test_a_foreign_feature_space_names_both_counts() -> None:
    with pytest.raises(InvalidFeatureIndex) as caught:
        bound_for_request(SaeReference("b", 9, 100), [B9], what="the cluster 'x'", param=None)
    assert (caught.value.details["n_features"], caught.value.details["d_sae"]) == (100, 200)


def test_at_most_twenty_indices_outside_are_named() -> None:
    require_indices([0, 99], A6, what="the profile 'calm'", param=None)
    require_indices([], A6, what="the profile 'calm'", param=None)
    with pytest.raises(InvalidFeatureIndex) as caught:
        require_indices(range(150, 98, -1), A6, what="the profile 'calm'", param=None)
    assert caught.value.details["bad_indices"] == list(range(100, 120))
    assert caught.value.message.startswith("'a' at layer 6 has features 0 to 99; the profile 'calm' names 100, 101,")
