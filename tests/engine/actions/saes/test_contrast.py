"""Contrasting two sets of texts, with an SAE whose activations can be worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.actions.saes.contrast import Contrast, ContrastFeature, cluster_document
from engine.engine import Engine
from engine.errors import InvalidParameter, SaeNotAttached
from engine.generation.prefill_job import ReadingFigures
from engine.library.records import FeatureLabel
from tests.made_saes import write_sae

EngineMaker = Callable[..., Engine]
A, B = ["the ship went along the coast", "the sea was calm"], ["a smile is written in bytes", "and never looks back"]


def make_word_sae(engine: Engine, folder: Path, layer: int = 0) -> str:
    """An SAE of three features: 0 fires where the stream's first coordinate is above 0, 1 where it is below, 2 never."""
    encoder = torch.zeros(32, 3)
    encoder[0, 0], encoder[0, 1] = 1.0, -1.0
    decoder = torch.zeros(3, 32)
    decoder[0, 0], decoder[1, 0], decoder[2, 1] = 2.0, -4.0, 1.0
    weights = {
        "W_enc": encoder,
        "W_dec": decoder,
        "b_enc": torch.tensor([0.0, 0.0, -1e6]),
        "b_dec": torch.zeros(32),
    }
    made = write_sae(
        folder,
        weights,
        architecture="standard",
        hook_name=f"blocks.{layer}.hook_resid_post",
        apply_b_dec_to_input=False,
    )
    record, _ = engine.saes.import_local(made, sae_id="words")
    return record.id


@pytest.fixture
def engine(make_engine: EngineMaker, tmp_path: Path) -> Engine:
    made = make_engine()
    make_word_sae(made, tmp_path / "words")
    made.attachments.attach("words")
    return made


def by_hand(engine: Engine) -> dict[str, list[list[float]]]:
    """Per set the mean and share of features 0 and 1, from readings of the texts one by one."""
    found: dict[str, list[list[float]]] = {}
    for name, texts in (("a", A), ("b", B)):
        values: list[tuple[float, ...]] = []
        for text in texts:
            tokens = engine.reading.read(text, top_k=0, features=[0, 1]).result(60).tokens
            values += [token.activations for token in tokens if not token.sink]
        found[name] = [
            [sum(v[i] for v in values) / len(values), sum(v[i] > 0 for v in values) / len(values)] for i in (0, 1)
        ]
    return found


def test_score_means_and_shares(engine: Engine) -> None:
    found = engine.contrasts.find(A, B, density_cap=1.0).result(60)
    expected = by_hand(engine)
    assert (found.sae_id, found.layer, found.model, found.left_out) == ("words", 0, "tiny-llama", 0)
    told = {each.index: (each, "a", "b") for each in found.toward_a}
    told |= {each.index: (each, "b", "a") for each in found.toward_b}
    leaning = 0
    for index in (0, 1):
        mean = expected["a"][index][0] - expected["b"][index][0]
        share = expected["a"][index][1] - expected["b"][index][1]
        assert (index in told) == (mean * share > 0)
        if index in told:
            leaning += 1
            each, mine, other = told[index]
            assert (mean > 0) == (mine == "a")
            assert each.score == pytest.approx(mean * share, rel=1e-4)
            assert [each.mean, each.share] == pytest.approx(expected[mine][index], rel=1e-4)
            assert [each.other_mean, each.other_share] == pytest.approx(expected[other][index], rel=1e-4)
            assert each.row_norm == pytest.approx((2.0, 4.0)[index])
            assert found.strength(each, 0.5) == round(0.5 * found.typical_norm / (2.0, 4.0)[index], 2)
    assert leaning, "the two sets were chosen to differ"


def test_swapping_the_sets_swaps_the_sides(engine: Engine) -> None:
    there, back = (engine.contrasts.find(*sets, density_cap=1.0).result(60) for sets in ((A, B), (B, A)))
    assert (there.toward_a, there.toward_b) == (back.toward_b, back.toward_a)
    assert (there.tokens_a, there.tokens_b) == (back.tokens_b, back.tokens_a)


def test_a_set_against_itself_has_no_difference(engine: Engine) -> None:
    found = engine.contrasts.find(A, A, density_cap=1.0).result(60)
    assert (found.toward_a, found.toward_b) == ((), ())


def test_the_density_cap_goes_by_the_label_where_there_is_one(engine: Engine) -> None:
    all_of_them = engine.contrasts.find(A, B, density_cap=1.0).result(60)
    some = (*all_of_them.toward_a, *all_of_them.toward_b)
    engine.saes.import_labels("words", [FeatureLabel(each.index, "x", density=0.05) for each in some])
    kept = engine.contrasts.find(A, B).result(60)
    assert len(kept.toward_a) + len(kept.toward_b) == len(some) and kept.left_out == 0
    assert {each.density for each in (*kept.toward_a, *kept.toward_b)} == {0.05}
    none = engine.contrasts.find(A, B, density_cap=0.04).result(60)
    assert (none.toward_a, none.toward_b, none.left_out) == ((), (), len(some))


def test_refusals(engine: Engine, make_engine: EngineMaker) -> None:
    with pytest.raises(InvalidParameter, match="There is no text in B"):
        engine.contrasts.find(A, [])
    with pytest.raises(InvalidParameter, match="The text 2 of A is empty"):
        engine.contrasts.find(["x", " "], B)
    with pytest.raises(InvalidParameter, match="at most 1000"):
        engine.contrasts.find(["x"] * 1001, B)
    with pytest.raises(InvalidParameter, match="above 0, at most 1"):
        engine.contrasts.find(A, B, density_cap=0.0)
    with pytest.raises(InvalidParameter, match="from 1 to 200"):
        engine.contrasts.find(A, B, limit=0)
    with pytest.raises(InvalidParameter, match="The texts of A hold no token to count"):
        engine.contrasts.find(["a"], B).result(60)
    with pytest.raises(SaeNotAttached):
        make_engine().contrasts.find(A, B)


def test_a_cluster_document_of_what_was_found(engine: Engine) -> None:
    first = ContrastFeature(0, 3.0, 5.0, 0.5, 1.0, 0.1, 0.02, 2.0, torch.tensor([2.0, 0.0]))
    second = ContrastFeature(1, 2.0, 4.0, 0.4, 1.0, 0.1, 0.03, 4.0, torch.tensor([0.0, 4.0]))
    found = Contrast("words", 0, "tiny-llama", 40, 30, 100.0, (first, second), (), 0, ReadingFigures(0.0, 1.0))
    labels = {0: FeatureLabel(0, "ships", max_activation=9.0, top_tokens=("ship",))}
    document = cluster_document(found, [first, second], "Ships", labels=labels, model_id=None, n_features=3, d_model=32)
    members = document["members"]
    # 0.3 of 100 in equal shares of 15: 7.5 times a row of length 2, 3.75 times one of length 4.
    assert [(m["feature_idx"], m["strength"], m.get("label")) for m in members] == [(0, 7.5, "ships"), (1, 3.75, None)]
    assert (members[0]["max_activation"], members[0]["meta"]["top_tokens"]) == (9.0, ["ship"])
    # Two vectors of length 15 at right angles: together 15·√2 = 21.21 long, 0.21 of the norm, though the shares sum to 0.3.
    assert document["narrative"].endswith(
        "the vector they add is 21.2 long, 0.21 of the residual stream's typical norm."
    )
    assert document["budget"]["constants"] == {
        "sum_over_median_norm": 0.3,
        "length": 21.2132,
        "length_over_median_norm": 0.2121,
    }
    assert document["budget"]["B"] == 11.25 and document["model"] == {"hf_id": "tiny-llama"}
    outcome = engine.clusters.import_document(json.dumps(document).encode())
    (item,) = outcome.results
    assert (item.status.value, item.warnings) == ("imported", ())
    assert item.profile_id is not None
    engine.clusters.activate(item.profile_id)
    assert dict(engine.desk.state.entry(("words", 0)).values) == {0: 7.5, 1: 3.75}
    with pytest.raises(InvalidParameter, match="1 to 20 of them"):
        cluster_document(found, [], "x", labels={}, model_id=None, n_features=3, d_model=32)
