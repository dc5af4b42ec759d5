"""Records of sweeps and contrasts: nothing is lost on the way into the library and back."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
import torch

from engine.actions.experiments import ExperimentActions
from engine.actions.experiments.contrasts import contrast_of, record_of_contrast
from engine.actions.experiments.export import as_csv, as_json, as_markdown
from engine.actions.experiments.sweeps import record_of_sweep, sweep_of
from engine.actions.saes.contrast import Contrast, ContrastFeature
from engine.actions.sweeping import export as sweeping
from engine.actions.sweeping.settings import BaseKind, CellResult, SweepBase, SweepOutcome, SweepSettings
from engine.errors import InvalidParameter
from engine.events import EventBus, ExperimentsChanged
from engine.generation.prefill_job import ReadingFigures
from engine.library.database import Library
from engine.library.records import ExperimentRecord, FeatureLabel, RecordKind
from engine.sampling import Sampling

VERSIONS = {"miLLM Desktop": "0.1.0"}
SWEEP = SweepOutcome(
    SweepSettings(("one", "two, with | a bar"), (0.0, 1.5), max_tokens=8, topic=frozenset({"sea", "ship"})),
    SweepBase(BaseKind.CLUSTER, "Harbour", {("a", 3): {5: 2.5, 7: -1.0}}, ("One warning.",), "c1"),
    (
        CellResult(0, 0.0, "plain words", 3, "stop", 0.0, 0.1, 2.0, 0.0),
        CellResult(0, 1.5, "a harbour", 3, "length", 0.5, 4.5, 3.0, 0.25, clamped=1),
        CellResult(1, 0.0, error="The model was unloaded."),
    ),
    {"Model": "tiny", "Date": "2026-01-02T03:04:05+00:00"},
    complete=False,
)
FIGURES = ReadingFigures(0.0, 0.0)
CONTRAST = Contrast(
    "a",
    3,
    "tiny",
    tokens_a=10,
    tokens_b=12,
    typical_norm=50.0,
    toward_a=(ContrastFeature(5, 1.25, 4.0, 0.5, 0.0, 0.0, 0.01, 2.0, torch.tensor([2.0])),),
    toward_b=(ContrastFeature(7, 0.5, 1.0, 0.25, 0.5, 0.125, 0.02, 1.0, torch.tensor([1.0])),),
    left_out=2,
    figures=FIGURES,
)
LABELS = {5: FeatureLabel(5, "harbour | quay")}


def contrast() -> ExperimentRecord:
    return record_of_contrast(CONTRAST, ["the harbour"], ["the bank", "the soup"], 0.06, LABELS, VERSIONS)


def places(strengths: dict[str, object]) -> dict[str, object]:
    """The dial of a sweep with these strengths at one place."""
    place = {"sae_id": "a", "layer": 3, "strengths": strengths}
    return {"kind": "cluster", "id": "c1", "name": "Harbour", "places": [place], "warnings": []}


@pytest.fixture
def actions(library: Library) -> ExperimentActions:
    return ExperimentActions(library, EventBus())


def test_a_sweep_comes_back_as_it_was_and_is_exported_alike(actions: ExperimentActions) -> None:
    record = actions.add(record_of_sweep(SWEEP, VERSIONS))
    assert (record.kind, record.title, record.model) == (RecordKind.SWEEP, "Sweep of Harbour", "tiny")
    found = actions.get(record.id)
    assert found == record
    assert sweep_of(found) == SWEEP
    assert as_csv(found) == sweeping.as_csv(SWEEP, VERSIONS)
    assert as_markdown(found) == sweeping.as_markdown(SWEEP, VERSIONS)
    assert '"kind": "millm.sweep"' in as_json(found)
    # The answers are found, those of either side.
    assert [each.id for each in actions.list("HARBOUR")] == [each.id for each in actions.list("plain words")] == [1]
    assert actions.list()[0].kind is RecordKind.SWEEP


def test_all_of_the_sampling_of_a_sweep_comes_back_and_is_told(actions: ExperimentActions) -> None:
    sampling = Sampling(
        temperature=0.5,
        top_p=0.9,
        top_k=20,
        min_p=0.05,
        frequency_penalty=0.5,
        presence_penalty=-0.25,
        repetition_penalty=1.1,
        logit_bias={7: -100.0},
        min_tokens=2,
        ignore_eos=True,
        seed=9,
    )
    sweep = replace(SWEEP, settings=replace(SWEEP.settings, sampling=sampling))
    record = actions.add(record_of_sweep(sweep, VERSIONS))
    found = actions.get(record.id)
    assert sweep_of(found) == sweep
    assert {name: value for name, value in found.settings.items() if name not in ("prompts", "intensities")} == {
        "max_tokens": 8,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 20,
        "min_p": 0.05,
        "frequency_penalty": 0.5,
        "presence_penalty": -0.25,
        "repetition_penalty": 1.1,
        "logit_bias": {"7": -100.0},
        "min_tokens": 2,
        "ignore_eos": True,
        "seed": 9,
        "topic": ["sea", "ship"],
        "system": "",
    }
    text = as_markdown(found)
    for line in (
        "- Sampling: temperature 0.5, top-p 0.9, seed 9",
        "- Repetition penalty: 1.1",
        "- Frequency penalty: 0.5",
        "- Presence penalty: -0.25",
        "- Top-k: 20",
        "- Min-p: 0.05",
        "- Logit bias: 7: -100.0",
        "- Min tokens: 2",
        "- End tokens ignored: yes",
    ):
        assert f"{line}\n" in text
    # One that was kept before a sweep had more than these.
    old = {name: found.settings[name] for name in ("prompts", "intensities", "max_tokens", "topic", "system")}
    old |= {"temperature": 0.5, "top_p": 0.9, "repetition_penalty": 1.1, "seed": 9}
    before = Sampling(temperature=0.5, top_p=0.9, repetition_penalty=1.1, seed=9)
    assert sweep_of(replace(found, settings=old)).settings.sampling == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("top_k", -1), ("min_p", 2), ("logit_bias", {"sea": 1}), ("ignore_eos", "yes"), ("seed", None), ("seed", 2**63)],
)
def test_sampling_of_a_kept_sweep_is_checked(name: str, value: object) -> None:
    record = record_of_sweep(SWEEP, VERSIONS)
    with pytest.raises(InvalidParameter) as caught:
        sweep_of(replace(record, settings={**record.settings, name: value}))
    assert caught.value.param == f"settings.{name}"


def test_a_figure_that_is_no_number_is_none(actions: ExperimentActions) -> None:
    cells = (replace(SWEEP.cells[0], loss=float("nan")),)
    record = actions.add(record_of_sweep(replace(SWEEP, cells=cells), VERSIONS))
    assert record.content["cells"][0]["loss"] is None
    assert sweep_of(record).cells[0].perplexity is None


def test_a_contrast_comes_back_with_its_texts_and_labels(actions: ExperimentActions) -> None:
    record = actions.add(contrast())
    assert (record.kind, record.title) == (RecordKind.CONTRAST, "Contrast: #5 harbour | quay")
    found = contrast_of(actions.get(record.id))
    assert (found.sae_id, found.layer, found.density_cap, found.typical_norm) == ("a", 3, 0.06, 50.0)
    assert (found.texts_a, found.texts_b) == (("the harbour",), ("the bank", "the soup"))
    first, second = found.toward_a[0], found.toward_b[0]
    assert (first.index, first.label, first.score, first.share) == (5, "harbour | quay", 1.25, 0.5)
    # 0.3 × 50 ÷ 2, the strength of a cluster of this feature alone.
    assert first.strength == 7.5
    assert (second.label, second.other_share) == (None, 0.125)
    text = as_markdown(record)
    assert "| SAE | a @ layer 3 |" in text
    assert "| 5 | harbour \\| quay | 1.25 | 4 | 0 | 50 % | 0 % | 1 % |" in text
    assert "| 7 | no label | 0.5 | 1 | 0.5 | 25 % | 12.5 % | 2 % |" in text
    assert "## Texts B\n\n- the bank\n- the soup\n" in text
    rows = list(csv.DictReader(io.StringIO(as_csv(record))))
    assert [(row["leans_to"], int(row["feature"]), row["label"]) for row in rows] == [
        ("a", 5, "harbour | quay"),
        ("b", 7, ""),
    ]
    assert (float(rows[0]["score"]), float(rows[0]["strength"]), float(rows[1]["other_share"])) == (1.25, 7.5, 0.125)


def test_a_comparison_is_no_table(actions: ExperimentActions) -> None:
    with pytest.raises(InvalidParameter, match="no table"):
        as_csv(actions.add(replace(contrast(), kind=RecordKind.COMPARISON)))


def test_a_contrast_without_labels_is_called_by_its_first_text() -> None:
    text = "a very long text about harbours, quays, ships and everything else that floats"
    assert record_of_contrast(CONTRAST, [text], ["b"], 0.06, {}, VERSIONS).title == (
        "Contrast: a very long text about harbours, quays, ships and…"
    )


def test_a_deleted_record_comes_back_with_its_kind(actions: ExperimentActions) -> None:
    record = actions.add(contrast())
    assert actions.restore(actions.remove(record.id)) == record


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"base": None}, "content.base"),
        ({"cells": {}}, "content.cells"),
        ({"cells": [1]}, "content.cells"),
        ({"cells": [{"prompt": 2, "intensity": 0}]}, "content.cells.prompt"),
        ({"cells": [{"prompt": 0, "intensity": "0"}]}, "content.cells.intensity"),
        ({"cells": [{"prompt": 0, "intensity": 0, "topic": True}]}, "content.cells.topic"),
        ({"cells": [{"prompt": 0, "intensity": 0, "topic": -1}]}, "content.cells.topic"),
        ({"cells": [{"prompt": 0, "intensity": 10**400}]}, "content.cells.intensity"),
        ({"base": places({"²": 1.0})}, "content.base.places.strengths"),
        ({"base": places({"3": "x"})}, "content.base.places.strengths"),
        ({"facts": []}, "content.facts"),
    ],
)
def test_a_sweep_that_is_none_is_refused_and_nobody_hears_of_it(
    library: Library, change: dict[str, object], param: str
) -> None:
    events = EventBus()
    heard: list[object] = []
    events.subscribe(heard.append)
    new = record_of_sweep(SWEEP, VERSIONS)
    with pytest.raises(InvalidParameter) as caught:
        ExperimentActions(library, events).add(replace(new, content={**new.content, **change}))
    assert caught.value.param == param
    assert library.experiments.list() == []
    assert not [each for each in heard if isinstance(each, ExperimentsChanged)]


def test_a_contrast_that_is_none_is_refused(actions: ExperimentActions) -> None:
    new = contrast()
    for content in ({**new.content, "toward_a": [{}]}, {**new.content, "texts_a": [3]}, {}):
        with pytest.raises(InvalidParameter):
            actions.add(replace(new, content=content))
