"""How a chat is sampled where nobody says otherwise: the model's own settings, then what was measured of the demo model;
what is used is told, and kept with the answer.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

from pytestqt.qtbot import QtBot

from app.demo.facts import demo_facts
from engine.actions.experiments.export import setting_rows
from engine.library.database import Library
from engine.library.records import EngineKind, ModelRecord, ModelSource
from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.look import send, until
from ui.context.page_context import CHAT
from ui.context.record_keeping import new_record
from ui.kit.chat_options import ChatOptions, Suggested, sampling_words
from ui.talk.chat_settings import ChatSettings
from ui.talk.options import OPTIONS_KEY, suggestions


def test_a_models_own_settings_are_used_told_and_kept(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "own-ideas")
    given = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1}
    (folder / "generation_config.json").write_text(json.dumps(given), encoding="utf-8")
    engine = make_engine(folder)
    stage = make_stage(engine)
    stage.window.show_page(CHAT)
    chat = stage.window.chat
    until(qtbot, lambda: chat.settings.temperature.value() == 0.6)
    words = "Also used: repetition penalty 1.1, top-p 0.9, top-k 20. By the model's own settings."
    assert chat.settings.also.isVisible() and chat.settings.also.text() == words
    chat.settings.length.setValue(4)
    until(qtbot, lambda: chat.composer.gate.isHidden())
    chat.set_comparing(True)
    send(chat, qtbot, "the sea")
    until(qtbot, lambda: not chat.busy and chat.session.messages)
    answer = chat.session.messages[1]
    assert answer.details["sampling"] == {
        "temperature": 0.6,
        "max_tokens": 4,
        "seed": None,
        "repetition_penalty": 1.1,
        "top_p": 0.9,
        "top_k": 20,
    }
    told = "temperature 0.6, repetition penalty 1.1, top-p 0.9, top-k 20, seed random"
    assert sampling_words(answer.details) == told
    record = engine.library.experiments.add(new_record(chat.session.messages, 1, {}))
    rows = dict(setting_rows(record))
    assert (rows["Repetition penalty"], rows["Top-p"], rows["Top-k"]) == ("1.1", "0.9", "20")
    # A person's own temperature stays, whatever the model says, and what the model says is told.
    chat.settings.temperature.setValue(1.2)
    until(qtbot, lambda: (engine.library.state.get(OPTIONS_KEY) or {}).get("temperature") == 1.2)
    chat.settings.suggest(Suggested({"temperature": 0.3}))
    assert chat.settings.temperature.value() == 1.2
    assert "The model's own temperature is 0.3." in chat.settings.also.text()


def test_what_a_person_did_not_set_is_not_kept_as_theirs(qtbot: QtBot) -> None:
    panel = ChatSettings()
    qtbot.addWidget(panel)
    panel.suggest(Suggested({"temperature": 0.3, "top_p": 0.5}, "By the model's own settings."))
    assert panel.own() == {"temperature": None, "max_tokens": None, "seed": None}
    sampling = panel.options().sampling
    assert (sampling.temperature, sampling.top_p, panel.slider.value()) == (0.3, 0.5, 30)
    # The next model has no ideas of its own.
    panel.suggest(Suggested())
    assert panel.options() == ChatOptions() and panel.also.isHidden()
    panel.slider.setValue(90)
    assert panel.own()["temperature"] == 0.9
    assert ChatOptions.from_json(panel.own()).sampling.temperature == 0.9
    assert ChatOptions.from_json({"temperature": None}).sampling.temperature == 0.7


def test_the_demo_model_is_given_a_penalty_in_either_form(library: Library, tmp_path: Path) -> None:
    facts = demo_facts()
    assert facts is not None and facts.repetition_penalty > 1
    for number, (name, kind) in enumerate(((facts.model, "TRANSFORMERS"), (f"{facts.model}:Q4_1", "LLAMACPP"))):
        new = ModelRecord(
            name=name, source=ModelSource.LOCAL, engine=EngineKind[kind], local_path=str(tmp_path / str(number))
        )
        found = suggestions(library.models.add(new), facts)
        assert found.values == {"repetition_penalty": facts.repetition_penalty} and "repeats itself" in found.source
    other = ModelRecord(
        name="another", source=ModelSource.LOCAL, engine=EngineKind.TRANSFORMERS, local_path=str(tmp_path)
    )
    record = library.models.add(other)
    assert suggestions(record, facts) == Suggested() == suggestions(record, None)
    # Its makers' word comes first.
    (tmp_path / "generation_config.json").write_text('{"top_k": 5}', encoding="utf-8")
    assert suggestions(replace(record, name=facts.model), facts).values == {"top_k": 5}
