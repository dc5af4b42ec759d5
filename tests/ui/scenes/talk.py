"""Home and Chat."""

from __future__ import annotations

from engine.library.conversations import StoredMessage
from engine.library.database import Library
from tests.ui.scenes.studio import Scene, Studio
from ui.context.page_context import CHAT, HOME, RECORDS
from ui.kit.steer_targets import TargetKind
from ui.talk.chat_side import ANSWERING, FEATURES
from ui.talk.compare_message import CompareMessage
from ui.talk.message_view import AnswerMessage
from ui.talk.prompt_inspector import PromptInspector

SALT = """Rivers carry **dissolved minerals** from rocks into the sea. Three things then keep the salt there:

1. Water evaporates, salt does not.
2. Vents on the sea floor add more.
3. Living things take out some minerals, but hardly any sodium or chloride.

| Water | Salt per litre |
|---|---|
| River | about 0.1 g |
| Sea | about 35 g |

> The Dead Sea holds ten times as much as the ocean.
"""
LOOP = """A comprehension says the same in one line:

```python
def squares_of_even(numbers: list[int]) -> list[int]:
    return [n * n for n in numbers if n % 2 == 0]

print(squares_of_even([1, 2, 3, 4]))  # [4, 16]
```

Use `filter` only where the condition already has a name.
"""
KEPT = (
    ("Names for a small grey cat", "What could I call a small grey cat?", "Ash, Pebble, Misty, Flint or Plume."),
    ("A packing list for three days by the sea", "What do I pack for three days by the sea?", "A hat, first of all."),
    ("Why the sea is salty", "Why is the sea salty?", SALT),
    ("A loop as a comprehension", "Turn my loop over even numbers into a comprehension.", LOOP),
)
TRAINS = "Two trains", "Two trains 100 km apart meet at 50 km/h each. When?"
THOUGHT = """They come nearer by 50 + 50 = 100 km each hour.

100 km at 100 km/h is one hour. The speeds are equal, so they meet in the middle, at 50 km."""
QUESTION = "Name three things one can see at the seaside."
PLACE = "Describe a place you like."


def keep_conversations(library: Library, model: str) -> None:
    """Earlier conversations for the list; once per library."""
    if library.conversations.list(None):
        return
    for title, question, reply in KEPT:
        details: dict[str, object] = {
            "model": model,
            "finish_reason": "stop",
            "completion_tokens": 96,
            "seconds_to_first_token": 0.4,
            "seconds_total": 6.4,
        }
        library.conversations.create(
            title, "", [StoredMessage("user", question, {}), StoredMessage("assistant", reply, details)]
        )


def chat_reasoning(studio: Studio) -> None:
    """An answer with its reasoning folded, and open."""
    keep_conversations(studio.engine.library, studio.record.name)
    title, question = TRAINS
    details: dict[str, object] = {"model": studio.record.name, "finish_reason": "stop", "completion_tokens": 71}
    reply = StoredMessage("assistant", "After **one hour**, half-way.", details, THOUGHT)
    studio.engine.library.conversations.create(title, "", [StoredMessage("user", question, {}), reply])
    open_conversation(studio, title)
    studio.take("chat-reasoning")
    view = studio.window.chat.messages.view(1)
    assert isinstance(view, AnswerMessage)
    view.reasoning.button.click()
    studio.take("chat-reasoning-open")


def ask(studio: Studio, question: str, tokens: int) -> None:
    """A new chat with one greedy answer in it."""
    chat = studio.window.chat
    chat.new_chat()
    chat.settings.temperature.setValue(0.0)
    chat.settings.length.setValue(tokens)
    chat.composer.field.setPlainText(question)
    chat.composer.button.click()
    studio.until(lambda: not chat.busy, "the answer")


def open_conversation(studio: Studio, title: str) -> None:
    """Bring a kept conversation to the front."""
    keep_conversations(studio.engine.library, studio.record.name)
    studio.window.show_page(CHAT)
    chat = studio.window.chat
    chat.desk.refresh()
    studio.until(lambda: title in chat.conversations.titles(), f"the conversation {title!r}")
    number = next(s.id for s in studio.engine.library.conversations.list(None) if s.title == title)
    chat.desk.open(number)
    studio.until(lambda: chat.session.conversation_id == number, f"{title!r} to open")


def home_before_loading(studio: Studio) -> None:
    keep_conversations(studio.engine.library, studio.record.name)
    studio.take("home-before-loading")


def chat_no_model(studio: Studio) -> None:
    studio.window.show_page(CHAT)
    studio.take("chat-no-model")


def home(studio: Studio) -> None:
    keep_conversations(studio.engine.library, studio.record.name)
    studio.load_model()
    studio.window.show_page(HOME)
    studio.take("home")


def home_steps(studio: Studio) -> None:
    """The steps done but for the last, and the pack's report."""
    studio.attach_demo_set()
    home_page = studio.window.home
    studio.window.show_page(HOME)
    studio.until(lambda: home_page.steps.attach.done, "the steps to follow")
    studio.take("home-steps")
    home_page.guide.show_report()
    dialog = home_page.guide.dialog
    assert dialog is not None
    studio.until(lambda: "What this does not show" in dialog.text.toPlainText(), "the report")
    studio.take("home-report", dialog)
    bar = dialog.area.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    studio.take("home-report-plots", dialog)
    dialog.close()


def chat_new(studio: Studio) -> None:
    studio.load_model()
    studio.window.show_page(CHAT)
    studio.window.chat.new_chat()
    studio.take("chat-new")


def chat_sampling(studio: Studio) -> None:
    studio.load_model()
    studio.window.show_page(CHAT)
    settings = studio.window.chat.settings
    settings.fields.toggle()
    settings.fields.number("min_p").setValue(0.05)
    studio.camera.settle()
    studio.take("chat-sampling")
    settings.fields.forget()
    settings.fields.toggle()


def chat_answer(studio: Studio) -> None:
    studio.load_model()
    studio.window.show_page(CHAT)
    chat = studio.window.chat
    chat.settings.system.setPlainText("You answer briefly.")
    ask(studio, QUESTION, 64)
    studio.take("chat-answer")
    chat.settings.inspect_button.click()
    dialog = next(d for d in chat.findChildren(PromptInspector))
    studio.until(lambda: dialog.tokens.model() is not None, "the exact prompt")
    studio.take("chat-answer-exact-prompt", dialog)
    dialog.close()


def chat_markdown(studio: Studio) -> None:
    open_conversation(studio, "Why the sea is salty")
    studio.take("chat-markdown")


def chat_code(studio: Studio) -> None:
    open_conversation(studio, "A loop as a comprehension")
    studio.take("chat-code")


def compare(studio: Studio) -> None:
    studio.attach_demo_set()
    window, chat = studio.window, studio.window.chat
    sea = next((each for each in studio.engine.clusters.list().clusters if "sea" in each.record.name), None)
    steer = None if sea is None else ("cluster", sea.record.id)
    window.go(CHAT, compare=True, prompt=PLACE, steer=steer, intensity=1.0)
    studio.until(lambda: not chat.dial.busy and studio.engine.desk.live_plan.sets, "the cluster to steer")
    chat.settings.system.setPlainText("")
    studio.take("compare-new")
    chat.settings.temperature.setValue(0.0)
    chat.settings.length.setValue(60)
    chat.composer.button.click()
    studio.until(lambda: not chat.busy, "both answers")
    studio.take("compare")
    first = studio.engine.desk.state.attachments[1]
    studio.engine.monitor.set_enabled(True)
    chat.side.show_panel(FEATURES)
    wanted = 3 if sea is None else next(iter(sea.record.steering))
    chat.lens.take(first.sae_id, first.layer, wanted)
    view = chat.messages.view(1)
    assert isinstance(view, CompareMessage)
    studio.until(lambda: view.plain.tokens is not None and view.steered.tokens is not None, "the colours")
    window.say("")
    chat.show_side()
    studio.take("compare-colours")
    view.keep_button.click()
    studio.until(lambda: studio.engine.library.experiments.list(), "the record")
    window.show_page(RECORDS)
    studio.until(lambda: window.records.view.record is not None, "the record to open")
    studio.take("records")
    window.show_page(CHAT)
    view.steered.inspect_button.click()
    dialog = next(d for d in chat.findChildren(PromptInspector))
    studio.until(lambda: dialog.tokens.model() is not None, "the exact prompt")
    dialog.tabs.button(1).click()
    studio.take("compare-inspector", dialog)
    dialog.close()
    chat.side.show_panel(ANSWERING)
    chat.lens.clear()
    studio.engine.monitor.set_enabled(False)
    studio.engine.profiles.deactivate(sea.record.id) if sea is not None else None
    chat.set_comparing(False)


def compare_circuit(studio: Studio) -> None:
    studio.attach_demo_set()
    window, chat = studio.window, studio.window.chat
    circuits = studio.engine.circuits.list(min_rung=2).circuits
    steer = ("circuit", circuits[0].record.id) if circuits else None
    window.go(CHAT, compare=True, prompt=PLACE, steer=steer)
    studio.until(lambda: not chat.dial.busy, "the circuit to steer")
    studio.take("compare-circuit")
    weak = [each for each in studio.engine.circuits.list().circuits if each.record.rung < 2]
    if weak:
        chat.dial.choose_soon(TargetKind.CIRCUIT, weak[0].record.id)
        studio.until(lambda: chat.strip.notice.words(), "the question")
        studio.take("compare-circuit-asks")
    for each in circuits:
        studio.engine.circuits.deactivate(each.record.id)
    chat.set_comparing(False)


SCENES = (
    Scene("home-before-loading", home_before_loading),
    Scene("chat-no-model", chat_no_model),
    Scene("home", home),
    Scene("chat-new", chat_new),
    Scene("chat-sampling", chat_sampling),
    Scene("chat-answer", chat_answer),
    Scene("chat-markdown", chat_markdown),
    Scene("chat-code", chat_code),
    Scene("chat-reasoning", chat_reasoning),
    Scene("home-steps", home_steps),
    Scene("compare", compare),
    Scene("compare-circuit", compare_circuit),
)
