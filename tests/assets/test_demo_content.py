"""The demo pack in the library: put in once, nothing active, replaced by another version, and taken out without a trace."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from app.demo.content import install_content, is_installed, remove_content
from app.demo.index import STATE_KEY, content_is_current, pack_folder
from engine.engine import Engine
from tests.conftest import EngineMaker


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
