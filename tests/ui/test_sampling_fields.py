"""The chat offers all of the sampling: folded away, each kept, told, used and given back; a sweep takes it the same way."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication, QCheckBox, QPlainTextEdit, QWidget
from pytestqt.qtbot import QtBot

from engine.actions.experiments.export import setting_rows
from engine.errors import InvalidParameter
from engine.sampling import Sampling
from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.look import send, until
from ui.context.page_context import CHAT
from ui.context.record_keeping import new_record
from ui.kit.chat_options import CHAT_SAMPLING, ChatOptions, Suggested, parse_biases, sampling_words
from ui.kit.number_field import WholeField
from ui.kit.sampling_fields import SamplingFields, ShortDecimal
from ui.steer.sweep_form import SweepForm
from ui.talk.chat_settings import ChatSettings
from ui.talk.conversation_export import as_markdown
from ui.talk.options import OPTIONS_KEY
from ui.talk.prompt_inspector import PromptInspector

SET = Sampling(
    temperature=0.8,
    top_p=0.95,
    top_k=50,
    min_p=0.0125,
    frequency_penalty=0.5,
    presence_penalty=-0.25,
    repetition_penalty=1.1,
    logit_bias={70: -100.0, 71: 2.5},
    min_tokens=2,
    ignore_eos=True,
    seed=11,
)
KEPT = {
    "temperature": 0.8,
    "top_p": 0.95,
    "top_k": 50,
    "min_p": 0.0125,
    "frequency_penalty": 0.5,
    "presence_penalty": -0.25,
    "repetition_penalty": 1.1,
    "logit_bias": {"70": -100.0, "71": 2.5},
    "min_tokens": 2,
    "ignore_eos": True,
    "seed": 11,
    "max_tokens": 3,
}
TOLD = (
    "temperature 0.8, frequency penalty 0.5, presence penalty -0.25, repetition penalty 1.1, top-p 0.95, top-k 50, "
    "min-p 0.0125, logit bias 70: -100.0, 71: 2.5, min tokens 2, end tokens ignored, seed 11"
)


def set_by_hand(found: SamplingFields, wanted: Sampling) -> None:
    for name, control in found.controls.items():
        value = getattr(wanted, name)
        match control:
            case QCheckBox():
                control.setChecked(value)
            case QPlainTextEdit():
                control.setPlainText("\n".join(f"{token}: {bias}" for token, bias in value.items()))
            case _:
                control.setValue(value)


def test_all_of_it_is_used_kept_told_and_offered_again(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    assert all(getattr(SET, each.name) != getattr(Sampling(), each.name) for each in fields(Sampling))
    engine = make_engine()
    stage = make_stage(engine)
    stage.window.show_page(CHAT)
    chat = stage.window.chat
    until(qtbot, lambda: chat.composer.gate.isHidden())
    set_by_hand(chat.settings.fields, SET)
    chat.settings.seed.setText("11")
    chat.settings.length.setValue(3)
    assert chat.settings.options() == ChatOptions("", 3, SET)
    send(chat, qtbot, "the sea")
    until(qtbot, lambda: not chat.busy and len(chat.session.messages) == 2)
    answer = chat.session.messages[1]
    assert answer.details["sampling"] == KEPT
    # End tokens end nothing, so the cap does; a token of −100 is never written.
    assert (answer.details["finish_reason"], answer.details["completion_tokens"]) == ("length", 3)
    assert sampling_words(answer.details) == TOLD
    assert TOLD in as_markdown("A title", "", chat.session.messages, {})
    # The prompt is counted as before.
    until(qtbot, lambda: "The prompt takes" in chat.settings.usage.text())
    # Written again with the same settings and seed it is the same.
    chat.messages.again.emit()
    until(qtbot, lambda: not chat.busy and chat.session.messages[1] is not answer)
    again = chat.session.messages[1]
    assert (again.content, again.details["sampling"]) == (answer.content, KEPT)
    chat._inspect_answer(1)
    inspector = chat.findChild(PromptInspector)
    assert inspector is not None and inspector.sampled.text() == f"Sampled with {TOLD}."
    inspector.close()
    # Kept between starts, and of a comparison in its record.
    until(qtbot, lambda: engine.library.state.get(OPTIONS_KEY) == KEPT)
    chat.set_comparing(True)
    chat.messages.again.emit()
    until(qtbot, lambda: not chat.busy and chat.session.messages[1].plain is not None)
    rows = dict(setting_rows(engine.library.experiments.add(new_record(chat.session.messages, 1, {}))))
    assert (rows["Logit bias"], rows["End tokens ignored"]) == ("70: -100.0, 71: 2.5", "yes")
    assert (rows["Min-p"], rows["Presence penalty"], rows["Min tokens"]) == ("0.0125", "-0.25", "2")
    number = chat.session.conversation_id
    stage.window.close()
    second = make_stage(engine).window.chat
    until(qtbot, lambda: second.settings.options() == ChatOptions("", 3, SET))
    record = engine.library.conversations.get(number) if number is not None else None
    assert record is not None and record.messages[1].details["sampling"] == KEPT


@pytest.fixture
def panel(qtbot: QtBot) -> ChatSettings:
    made = ChatSettings()
    qtbot.addWidget(made)
    return made


def test_what_cannot_be_used_of_kept_options_falls_back_alone(panel: ChatSettings) -> None:
    panel.suggest(Suggested({"temperature": 0.6, "top_p": 0.9}, "By the model's own settings."))
    panel.restore(
        KEPT
        | {"top_p": 7, "top_k": 2.5, "min_p": None, "logit_bias": [1], "ignore_eos": "yes", "seed": 2**70}
        | {"max_tokens": True, "a field of tomorrow": {"x": 1}}
    )
    expected = replace(SET, top_p=0.9, top_k=0, min_p=0.0, logit_bias={}, ignore_eos=False, seed=None)
    assert panel.options() == ChatOptions("", None, expected)
    for nonsense in (None, "text", [], 5, {"temperature": float("nan"), "top_k": 10**400}):
        panel.restore(nonsense)
        assert panel.options() == ChatOptions("", None, Sampling(temperature=0.6, top_p=0.9))


def test_what_a_person_set_holds_over_every_model_and_can_be_taken_back(panel: ChatSettings) -> None:
    panel.suggest(Suggested({"temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.0499999523}, "By its files."))
    assert panel.also.text() == "Also used: repetition penalty 1.05, top-p 0.9. By its files."
    # Its fields show fewer digits than it has: that loses nothing.
    assert panel.options().sampling.repetition_penalty == 1.0499999523
    panel.fields.number("top_p").setValue(1.0)
    panel.temperature.setValue(0.7)
    assert panel.own() == {"temperature": 0.7, "max_tokens": None, "seed": None, "top_p": 1.0}
    assert panel.fields.mine.text() == "Set by you: top-p 1.0."
    assert panel.also.text() == "Also used: repetition penalty 1.05. The model's own temperature is 0.6. By its files."
    # After a start, too, what a person said is theirs, be it what the program itself would say.
    kept = panel.own()
    panel.restore({})
    panel.restore(kept)
    panel.suggest(Suggested({"temperature": 0.3, "top_p": 0.5, "min_p": 0.1}, "By its files."))
    assert panel.options().sampling == Sampling(temperature=0.7, top_p=1.0, min_p=0.1)
    panel.fields.reset.click()
    assert panel.options().sampling == Sampling(temperature=0.3, top_p=0.5, min_p=0.1)
    assert panel.own() == {"temperature": None, "max_tokens": None, "seed": None}
    assert panel.slider.value() == 30 and panel.fields.mine.isHidden() and panel.fields.reset.isHidden()


def test_biases_that_cannot_be_read_are_said_and_nothing_is_sent(panel: ChatSettings) -> None:
    biases = panel.fields.controls["logit_bias"]
    assert isinstance(biases, QPlainTextEdit)
    biases.setPlainText("70: 1")
    assert panel.own()["logit_bias"] == {"70": 1.0}
    biases.setPlainText("70: much")
    assert (
        panel.fields.bias_error.text() == "“70: much” is no token and bias." and not panel.fields.bias_error.isHidden()
    )
    for read in (panel.options, panel.own):
        with pytest.raises(InvalidParameter):
            read()
    # What was typed stays when the model changes.
    panel.suggest(Suggested({"top_k": 5}, "By its files."))
    assert biases.toPlainText() == "70: much"
    biases.clear()
    assert panel.fields.bias_error.isHidden() and "logit_bias" not in panel.own()
    switch = panel.fields.controls["ignore_eos"]
    assert isinstance(switch, QCheckBox)
    switch.click()
    assert panel.own()["ignore_eos"] is True
    switch.click()
    assert "ignore_eos" not in panel.own() and panel.fields.mine.isHidden()


def test_more_is_opened_and_walked_through_by_the_keyboard(qtbot: QtBot, panel: ChatSettings) -> None:
    panel.show()
    panel.activateWindow()
    more = panel.fields.more
    more.setFocus(Qt.FocusReason.TabFocusReason)
    assert panel.fields.panel.isHidden() and more.accessibleName() == "More sampling settings"
    qtbot.keyClick(more, Qt.Key.Key_Space)
    assert panel.fields.panel.isVisible() and more.accessibleName() == "Less sampling settings"
    met: list[str] = []
    while len(met) < 12:
        qtbot.keyClick(panel.window().focusWidget() or panel, Qt.Key.Key_Tab)
        focused = panel.window().focusWidget()
        assert focused is not None
        met.append(focused.accessibleName())
        if met[-1] == "End tokens ignored":
            break
    assert met == [
        "Frequency penalty",
        "Presence penalty",
        "Repetition penalty",
        "Top-p",
        "Top-k",
        "Min-p",
        "Logit bias",
        "Min tokens",
        "End tokens ignored",
    ]


def test_the_wheel_passes_over_the_fields(panel: ChatSettings) -> None:
    panel.fields.toggle()
    panel.show()
    for control in panel.fields.controls.values():
        wheel(control)
    assert panel.options().sampling == CHAT_SAMPLING and not panel.fields.chosen


def wheel(over: QWidget) -> None:
    place = QPointF(5, 5)
    event = QWheelEvent(
        place,
        over.mapToGlobal(place),
        QPoint(),
        QPoint(0, 120),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(over, event)


def test_every_control_can_hold_what_its_setting_may_be(panel: ChatSettings) -> None:
    for name in ("temperature", "top_p", "min_p"):
        assert panel.fields.number(name).minimum() == 0
    assert (panel.fields.number("top_p").maximum(), panel.fields.number("temperature").maximum()) == (1, 2)
    for name in ("frequency_penalty", "presence_penalty"):
        assert (panel.fields.number(name).minimum(), panel.fields.number(name).maximum()) == (-2, 2)
    penalty = panel.fields.number("repetition_penalty")
    assert (penalty.minimum(), penalty.maximum()) == (0.01, 2)
    assert all(isinstance(panel.fields.controls[name], WholeField) for name in ("top_k", "min_tokens"))
    short = panel.fields.number("min_p")
    for value, text in ((0.5, "0.50"), (0.0125, "0.0125"), (0.005, "0.005"), (1.0, "1.00")):
        short.setValue(value)
        assert short.text() == text and panel.options().sampling.min_p == value
    assert isinstance(short, ShortDecimal)


def test_a_sweep_form_reads_all_of_it(qtbot: QtBot) -> None:
    form = SweepForm()
    qtbot.addWidget(form)
    assert form.settings().sampling == Sampling(temperature=0.0, seed=0)
    set_by_hand(form.sampling, SET)
    assert form.seed.isEnabled()
    form.seed.setText("11")
    settings = form.settings()
    assert settings.sampling == SET
    assert settings.sampling.logit_bias == parse_biases("70: -100\n71: 2.5")
    form.tokens.setValue(1)
    with pytest.raises(InvalidParameter, match="min_tokens"):
        form.settings()
    form.sampling.reset.click()
    assert form.settings().sampling == Sampling(temperature=0.0, seed=11) and not form.seed.isEnabled()
