"""The demo pack in the library: put in once, nothing active, replaced by another version, and taken out without a trace."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from app.demo.content import install_content, is_installed, own_documents, remove_content
from app.demo.index import STATE_KEY, PackStanding, compare, content_is_current, content_of, digest_of, pack_folder
from app.demo.pack import SMOLLM2
from engine.actions.saes.errors import SaeAlreadyAttached
from engine.engine import Engine
from tests.conftest import EngineMaker
from tests.made_saes import make_sae


@pytest.fixture
def engine(make_engine: EngineMaker) -> Engine:
    return make_engine(None)


def _rows(engine: Engine) -> dict[str, list[str]]:
    return {
        "saes": sorted(each.id for each in engine.saes.list()),
        "profiles": sorted(each.name for each in engine.library.profiles.list()),
        "circuits": sorted(each.name for each in engine.library.circuits.list().circuits),
        "sets": [each.name for each in engine.library.attach_sets.list()],
    }


def test_installs_once_and_activates_nothing(engine: Engine) -> None:
    assert not is_installed(engine.library)
    assert not content_is_current(engine.library.path)
    assert install_content(engine)
    assert content_is_current(engine.library.path)
    rows = _rows(engine)
    index = json.loads((pack_folder() / "pack.json").read_text(encoding="utf-8"))
    assert rows["saes"] == sorted(each["sae_id"] for each in index["saes"])
    assert len(rows["profiles"]) == len(index["profiles"]) + len(index["clusters"])
    assert len(rows["circuits"]) == len(index["circuits"])
    assert rows["sets"] == [index["attach_set"]]
    assert engine.desk.state.attachments == ()
    assert not any(each.is_active for each in engine.library.profiles.list())
    sae_id = index["saes"][0]["sae_id"]
    assert len(engine.library.labels.search(sae_id, "medicine")) >= 1
    assert is_installed(engine.library)
    assert not install_content(engine)
    assert _rows(engine) == rows


def test_the_saes_bring_the_figures_that_strengths_are_begun_by(engine: Engine) -> None:
    """The stream's medians as they stand in the pack; nothing is read for them, and no model is loaded."""
    assert install_content(engine)
    medians = {10: 134.923, 15: 167.902, 20: 239.556}
    for record in engine.saes.list():
        layer = record.trained_layer
        assert layer is not None and record.measured_l0 == 32.0 and record.measured_at is None
        quality = record.config["quality"]
        assert (quality["layer"], quality["median_norm"]) == (layer, medians[layer])
        assert (quality["model_name"], quality["repo_id"]) == (SMOLLM2.model_name, SMOLLM2.repo_id)
        assert record.config["d_in"] == 576


def test_a_pack_without_figures_installs_as_before(engine: Engine, tmp_path: Path) -> None:
    older = tmp_path / "pack"
    shutil.copytree(pack_folder(), older, ignore=shutil.ignore_patterns("build", "measured.json"))
    index = json.loads((older / "pack.json").read_text(encoding="utf-8"))
    del index["measured"]
    index["version"] = "5"
    (older / "pack.json").write_text(json.dumps(index), encoding="utf-8")
    assert install_content(engine, pack=older)
    assert all(each.measured_l0 is None and "quality" not in each.config for each in engine.saes.list())
    assert content_of(engine.library.path).standing is PackStanding.OLDER
    assert install_content(engine)
    assert all(each.measured_l0 == 32.0 for each in engine.saes.list())
    assert content_of(engine.library.path).standing is PackStanding.CURRENT


def test_another_version_takes_the_place_of_the_first(engine: Engine, tmp_path: Path) -> None:
    assert install_content(engine)
    before = _rows(engine)
    newer = tmp_path / "pack"
    shutil.copytree(pack_folder(), newer, ignore=shutil.ignore_patterns("build"))
    index = json.loads((newer / "pack.json").read_text(encoding="utf-8"))
    gone = index["clusters"].pop()
    (newer / "pack.json").write_text(json.dumps(index), encoding="utf-8")
    name = json.loads((newer / gone).read_text(encoding="utf-8"))["name"]
    assert install_content(engine, pack=newer)
    after = _rows(engine)
    assert set(before["profiles"]) - set(after["profiles"]) == {name}
    assert {key: after[key] for key in ("saes", "circuits", "sets")} == {
        key: before[key] for key in ("saes", "circuits", "sets")
    }


def _older_pack(tmp_path: Path) -> Path:
    """The pack as version 2: other weights under the same ids, and a cluster that the present one has not."""
    older = tmp_path / "older"
    shutil.copytree(pack_folder(), older, ignore=shutil.ignore_patterns("build"))
    index = json.loads((older / "pack.json").read_text(encoding="utf-8"))
    index["version"] = "2"
    gone = json.loads((older / "clusters/sea.cluster.json").read_text(encoding="utf-8"))
    gone["name"] = "Demo: the body"
    (older / "clusters/body.cluster.json").write_text(json.dumps(gone), encoding="utf-8")
    index["clusters"].append("clusters/body.cluster.json")
    (older / "pack.json").write_text(json.dumps(index), encoding="utf-8")
    for layer in (10, 15, 20):
        weights = older / "saes" / f"layer_{layer}" / "sae_weights.safetensors"
        tensors = load_file(weights)
        tensors["b_dec"] = tensors["b_dec"] + 1
        save_file(tensors, weights)
    return older


def test_an_older_pack_is_upgraded_and_a_persons_own_stays(engine: Engine, tmp_path: Path) -> None:
    index = json.loads((pack_folder() / "pack.json").read_text(encoding="utf-8"))
    ids = [each["sae_id"] for each in index["saes"]]
    assert install_content(engine, pack=_older_pack(tmp_path))
    assert "Demo: the body" in _rows(engine)["profiles"]
    mine = engine.profiles.create(name="mine", sae_id=ids[1], layer=15, steering={1: 2.0})
    engine.attachments.save_set("my set", [(ids[2], 20)])
    hashes = {each.id: each.files_sha256 for each in engine.saes.list()}
    found = content_of(engine.library.path)
    assert (found.standing, found.version, found.here) == (PackStanding.OLDER, "2", "6")
    assert found.in_words == (
        "but its demo pack is older (version 2, this program has version 6); to upgrade: demo install"
    )
    assert install_content(engine)
    rows = _rows(engine)
    assert rows["saes"] == ids
    assert rows["sets"] == [index["attach_set"], "my set"]
    assert "Demo: the body" not in rows["profiles"]
    assert len(rows["profiles"]) == len(index["profiles"]) + len(index["clusters"]) + 1
    assert len(rows["circuits"]) == len(index["circuits"])
    # No name got a number, and the weights under the same ids are the new ones.
    assert not any(name.endswith(")") for name in rows["profiles"] + rows["circuits"])
    assert all(each.files_sha256 != hashes[each.id] for each in engine.saes.list())
    assert engine.library.profiles.get(mine.record.id) == mine.record
    assert engine.library.attach_sets.get("my set").items[0].sae_id == ids[2]  # type: ignore[union-attr]
    assert own_documents(engine) == ["mine"]
    assert content_of(engine.library.path).standing is PackStanding.CURRENT
    assert not install_content(engine)
    assert _rows(engine) == rows


def test_a_pack_that_is_attached_is_not_replaced_and_nothing_changes(make_engine: EngineMaker, tmp_path: Path) -> None:
    """The tiny model is too narrow for the pack's SAEs: one of its own width is remembered as one of them."""
    engine = make_engine()
    assert install_content(engine, pack=_older_pack(tmp_path))
    engine.saes.import_local(make_sae(tmp_path / "made"), sae_id="made", layer=1)
    there = engine.library.state.get(STATE_KEY)
    assert isinstance(there, dict)
    engine.library.state.set(STATE_KEY, there | {"saes": [*there["saes"], "made"]})
    engine.attachments.attach("made", 1)
    before = _rows(engine)
    for action in (install_content, remove_content):
        with pytest.raises(SaeAlreadyAttached, match=r"attached \(layer 1\), so they cannot be replaced or removed"):
            action(engine)
        assert _rows(engine) == before
    engine.attachments.detach("made")
    assert install_content(engine)
    assert content_of(engine.library.path).standing is PackStanding.CURRENT


def test_what_a_library_remembers_is_told_apart() -> None:
    digest = digest_of(pack_folder())
    for remembered, standing in (
        (None, PackStanding.MISSING),
        ({"digest": "", "version": "6"}, PackStanding.UNFINISHED),
        ({"digest": "0"}, PackStanding.OLDER),
        ({"digest": "0", "version": "2"}, PackStanding.OLDER),
        ({"digest": "0", "version": "5"}, PackStanding.OLDER),
        ({"digest": "0", "version": "6"}, PackStanding.OTHER),
        ({"digest": "0", "version": "7"}, PackStanding.OTHER),
        ({"digest": "0", "version": "x"}, PackStanding.OTHER),
        ({"digest": digest, "version": "6"}, PackStanding.CURRENT),
        ({"digest": digest}, PackStanding.CURRENT),
    ):
        content = compare(remembered, pack_folder())
        assert content.standing is standing, remembered
        assert bool(content.in_words) is (standing is not PackStanding.CURRENT)
        assert ("is older (" in content.in_words) is (standing is PackStanding.OLDER)


def test_removal_leaves_a_persons_own(engine: Engine) -> None:
    assert install_content(engine)
    mine = engine.profiles.create(name="mine", steering={1: 2.0})
    assert remove_content(engine)
    assert _rows(engine) == {"saes": [], "profiles": [mine.record.name], "circuits": [], "sets": []}
    assert engine.library.state.get(STATE_KEY) is None
    assert not remove_content(engine)


def test_a_run_cut_short_is_finished_by_the_next(engine: Engine) -> None:
    class Interrupted(Exception):
        pass

    def stop_there(percent: float, phrase: str) -> None:
        if percent >= 75:
            raise Interrupted

    with pytest.raises(Interrupted):
        install_content(engine, stop_there)
    assert not is_installed(engine.library)
    assert install_content(engine)
    assert is_installed(engine.library)
    assert len(_rows(engine)["saes"]) == 3


def test_what_the_clusters_say_they_add_is_the_length_of_the_vector() -> None:
    """Worked out from the shipped decoder rows with numpy, not with the code that wrote the words."""
    lengths = {}
    for path in sorted((pack_folder() / "clusters").glob("*.cluster.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        rows = load_file(pack_folder() / "saes" / f"layer_{document['sae']['layer']}" / "sae_weights.safetensors")
        decoder = rows["W_dec"].float().numpy().astype("float64")
        vector = sum(each["strength"] * decoder[each["feature_idx"]] for each in document["members"])
        length = lengths[path.name.split(".")[0]] = float((vector**2).sum() ** 0.5)
        constants = document["budget"]["constants"]
        assert constants["length"] == pytest.approx(length, abs=0.006)
        assert f"the vector they add is {length:.1f} long" in document["narrative"]
        assert f"{constants['length_over_median_norm']:.2f} of the layer's median norm" in document["narrative"]
        assert length < document["budget"]["B"] - 10
    assert lengths == {
        "food": pytest.approx(33.83, abs=0.01),
        "medicine": pytest.approx(37.04, abs=0.01),
        "money": pytest.approx(34.78, abs=0.01),
        "music": pytest.approx(40.82, abs=0.01),
        "religion": pytest.approx(40.44, abs=0.01),
        "sea": pytest.approx(38.96, abs=0.01),
    }
