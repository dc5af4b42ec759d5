"""What is looked at: features by label, in a text, by contrast; the live monitor; a sweep of the dial."""

from __future__ import annotations

from tests.ui.scenes.studio import Scene, Studio
from tests.ui.scenes.talk import QUESTION, ask
from ui.context.page_context import CHAT, FEATURES, MONITOR, RECORDS, SWEEP
from ui.look.features import CONTRAST, LABELS, READ, SEEN, FeaturesPage
from ui.look.monitor import HISTORY, STATISTICS, MonitorPage
from ui.steer.sweep import SweepPage

READ_ALONG = (
    "The captain lowered the anchor in the harbour before the tide turned. By noon the doctor had seen nine patients, "
    "and the bank had raised its interest rates again. The judge ruled that the contract was void; nobody in the "
    "kitchen cared, since the soup needed salt."
)
WITH_IT = """The ship sailed across the ocean while waves broke over the deck.
Sailors lowered the anchor in the harbour before the tide turned.
A fishing boat drifted along the coast under a grey sky.
Seagulls followed the ferry far out to sea."""
WITHOUT_IT = """The bank raised interest rates on loans and mortgages.
She baked bread and a chocolate cake for the guests.
The judge ruled that the contract was void under the statute.
A diagnosis of diabetes requires a blood test."""


def features_page(studio: Studio) -> FeaturesPage:
    studio.attach_demo_set()
    studio.window.show_page(FEATURES)
    page = studio.window.page(FEATURES)
    assert isinstance(page, FeaturesPage)
    places = studio.engine.desk.state.attachments
    middle = places[len(places) // 2]
    page.places.choose(middle.sae_id, middle.layer)
    return page


def open_record(studio: Studio, begins: str) -> None:
    """The record that was just saved, opened."""
    saved = studio.engine.library.experiments
    studio.until(lambda: any(each.title.startswith(begins) for each in saved.list()), "the record")
    number = next(each.id for each in saved.list() if each.title.startswith(begins))
    studio.window.go(RECORDS, record=number)
    view = studio.window.records.view
    studio.until(lambda: view.record is not None and view.record.id == number, "the record to open")


def features_gate(studio: Studio) -> None:
    studio.load_model()
    studio.window.show_page(FEATURES)
    studio.take("features-no-sae")


def features_labels(studio: Studio) -> None:
    page = features_page(studio)
    page.open_tab(LABELS)
    page.picker.field.setText("sea" if studio.demo else "")
    studio.until(lambda: page.picker.shown() or page.picker.words.text(), "labels")
    if page.picker.shown():
        studio.camera.settle()
        page.picker.table.selectRow(0)
        page.show_feature(page.picker.shown()[0].feature_idx)
        studio.until(lambda: page.detail.facts is not None, "the feature")
        if studio.demo:
            # Measured in the background after the first load.
            studio.until(lambda: page.detail.facts and page.detail.facts.typical_norm, "the SAE to be measured")
    studio.take("features-labels")


def features_reading(studio: Studio) -> None:
    page = features_page(studio)
    page.open_tab(READ)
    page.reading.field.setPlainText(READ_ALONG)
    page.reading.read_button.click()
    studio.until(lambda: page.reading.reading is not None and page.reading.read_button.isEnabled(), "the reading")
    tokens = page.reading.reading.tokens if page.reading.reading is not None else ()
    place = next((number for number, token in enumerate(tokens) if "harbour" in token.text), 3)
    page.reading.chips.choose(place)
    page.reading.chips.picked.emit(place)
    studio.take("features-reading")
    rows = page.reading.table.rows.rows
    row = next((each for each in rows if "sea" in each.words), rows[0])
    page.reading.table.chosen.emit(row)
    studio.until(lambda: page.reading.clear_colour.isVisible() and page.detail.facts is not None, "the colours")
    studio.take("features-colour")


def features_contrast(studio: Studio) -> None:
    page = features_page(studio)
    page.open_tab(CONTRAST)
    tab = page.contrast
    tab.first.setPlainText(WITH_IT)
    tab.second.setPlainText(WITHOUT_IT)
    tab.run_button.click()
    studio.until(lambda: tab.run_button.isEnabled() and tab.table.rows.rows, "the contrast")
    tab.table.selectRow(0)
    page.show_feature(tab.table.rows.rows[0].feature.index)
    studio.camera.settle()
    studio.take("features-contrast")
    tab.keep_button.click()
    open_record(studio, "Contrast")
    studio.take("records-contrast")


def monitor(studio: Studio) -> None:
    studio.attach_demo_set()
    studio.window.show_page(MONITOR)
    page = studio.window.page(MONITOR)
    assert isinstance(page, MonitorPage)
    places = studio.engine.desk.state.attachments
    middle = places[len(places) // 2]
    page.places.choose(middle.sae_id, middle.layer)
    page.switch.click()
    studio.until(lambda: studio.engine.monitor.state().enabled, "the monitor")
    studio.take("monitor-waiting")
    studio.window.show_page(CHAT)
    ask(studio, QUESTION, 60)
    studio.window.show_page(MONITOR)
    studio.until(lambda: page.map.shown is not None and page.statistics.rows.rows, "the map")
    page.open_tab(STATISTICS)
    studio.take("monitor")
    page.open_tab(HISTORY)
    studio.take("monitor-history")


def features_seen(studio: Studio) -> None:
    page = features_page(studio)
    page.open_tab(SEEN)
    studio.until(lambda: page.seen.table.rows.rows, "what was seen")
    page.show_feature(page.seen.table.rows.rows[0].index)
    studio.camera.settle()
    studio.take("features-seen")
    studio.engine.monitor.configure(False)


def sweep(studio: Studio) -> None:
    studio.attach_demo_set()
    if not studio.demo:
        first = studio.engine.desk.state.attachments[0]
        studio.engine.hand_steering.set_value(3, 4.0, sae_id=first.sae_id, layer=first.layer)
    studio.window.show_page(SWEEP)
    page = studio.window.page(SWEEP)
    assert isinstance(page, SweepPage)
    wanted = [each for each in studio.engine.sweeps.choices() if "sea" in each.name]
    page.arrive(kind=str(wanted[0].kind) if wanted else "live", id=wanted[0].id if wanted else "")
    studio.until(lambda: page.form.ready and page.run_button.isEnabled(), "the choices")
    page.form.intensities.setText("0.5, 1, 2")
    page.form.penalty.setValue(1.2)
    page.form.tokens.setValue(32)
    studio.camera.settle()
    studio.take("sweep-new")
    page.form.sampling.toggle()
    studio.camera.settle()
    studio.take("sweep-sampling")
    page.form.sampling.toggle()
    page.run_button.click()
    studio.until(lambda: page.progress.value() >= 5, "some answers")
    studio.take("sweep-running")
    studio.until(lambda: page.outcome is not None, "the sweep")
    page.table.setCurrentIndex(page.table.sweep.index(1, 2))
    studio.take("sweep")
    page.keep_button.click()
    open_record(studio, "Sweep")
    studio.take("records-sweep")


SCENES = (
    Scene("features-no-sae", features_gate),
    Scene("features-labels", features_labels),
    Scene("features-reading", features_reading),
    Scene("features-contrast", features_contrast),
    Scene("monitor", monitor),
    Scene("features-seen", features_seen),
    Scene("sweep", sweep),
)
