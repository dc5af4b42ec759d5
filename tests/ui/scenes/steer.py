"""What steers: features by hand, profiles, clusters and circuits."""

from __future__ import annotations

from tests.ui.scenes.studio import Scene, Studio
from tests.ui.scenes.talk import QUESTION, ask
from ui.context.page_context import CHAT, CIRCUITS, CLUSTERS, PROFILES, STEERING
from ui.steer.circuit_card import DRAWING, EVIDENCE
from ui.steer.circuits import CircuitsPage
from ui.steer.clusters import ClustersPage
from ui.steer.profiles import ProfilesPage


def steering_no_sae(studio: Studio) -> None:
    studio.load_model()
    studio.window.show_page(STEERING)
    studio.take("steering-no-sae")


def steering(studio: Studio) -> None:
    studio.attach_demo_set()
    first, second = studio.engine.desk.state.attachments[:2]
    known = [each.feature_idx for each in studio.engine.library.labels.search(first.sae_id, "", limit=2)]
    studio.engine.hand_steering.set_values(
        dict(zip([*known, 41, 7, 99], (12.0, -40.0, 2.0), strict=False)), sae_id=first.sae_id, layer=first.layer
    )
    studio.window.show_page(STEERING)
    page = studio.window.steering
    number = len(studio.engine.desk.state.attachments)
    studio.until(lambda: len(page.cards) == number and len(page.shelf.rows) >= number, "the attached SAEs")
    studio.camera.settle(600)
    studio.take("steering")
    studio.engine.hand_steering.set_values({3: 1.0}, sae_id=second.sae_id, layer=second.layer)
    studio.window.show_page(CHAT)
    ask(studio, QUESTION, 48)
    studio.take("steering-chat")
    for each in studio.engine.desk.state.attachments:
        studio.engine.hand_steering.clear(sae_id=each.sae_id, layer=each.layer)


def clusters(studio: Studio) -> None:
    studio.load_model()
    studio.window.show_page(CLUSTERS)
    page = studio.window.page(CLUSTERS)
    assert isinstance(page, ClustersPage)
    studio.until(lambda: page.views, "the clusters")
    studio.take("clusters-unbound")
    studio.attach_demo_set()
    key = next(key for key, each in page.views.items() if "sea" in each.view.summary.record.name)
    studio.engine.clusters.activate(key)
    page.select(key)
    studio.until(lambda: page.view is not None and page.view.view.steers, "the active cluster")
    studio.take("clusters")
    studio.engine.clusters.deactivate(key)


def profiles(studio: Studio) -> None:
    studio.attach_demo_set()
    studio.window.show_page(PROFILES)
    page = studio.window.page(PROFILES)
    assert isinstance(page, ProfilesPage)
    studio.until(lambda: page.views, "the profiles")
    key = next(key for key, each in page.views.items() if "law" in each.record.name)
    studio.engine.profiles.activate(key)
    page.select(key)
    studio.until(lambda: page.view is not None and page.view.steers, "the active profile")
    studio.take("profiles")
    page.card.edit_button.click()
    studio.until(lambda: page.stack.currentWidget() is page.editor, "the editor")
    studio.camera.settle(600)
    studio.take("profiles-edit")
    page.editor.cancel_button.click()
    studio.engine.profiles.deactivate(key)


def circuits(studio: Studio) -> None:
    studio.load_model()
    studio.window.show_page(CIRCUITS)
    page = studio.window.page(CIRCUITS)
    assert isinstance(page, CircuitsPage)
    studio.until(lambda: page.views, "the circuits")
    studio.take("circuits-unbound")
    studio.attach_demo_set()
    key = next(key for key, each in page.views.items() if "law" in each.record.name)
    page.select(key)
    studio.engine.circuits.activate(key, acknowledge_unvalidated=True)
    studio.until(lambda: page.view is not None and page.view.view.summary.steering, "the serving circuit")
    for tokens in (10, 14, 18, 24, 32):
        ask(studio, "What does a judge do all day?", tokens)
        # Until one ends at a word that lights a node.
        if any(item.lit > 0 for item in page.card.drawing.view.nodes.values()):
            break
    studio.window.show_page(CIRCUITS)
    studio.take("circuits")
    page.card.open_tab(EVIDENCE)
    studio.take("circuits-evidence")
    page.card.open_tab(DRAWING)
    other = next(each for each in page.views if each != key)
    page.select(other)
    page.card.check.setChecked(True)
    page.card.switch_button.click()
    studio.until(lambda: page.contention is not None and page.contention.isVisible(), "the question")
    assert page.contention is not None
    studio.take("circuits-contention", page.contention)
    page.contention.cancel_button.click()
    studio.engine.circuits.deactivate(key)


SCENES = (
    Scene("steering-no-sae", steering_no_sae),
    Scene("steering", steering),
    Scene("profiles", profiles),
    Scene("clusters", clusters),
    Scene("circuits", circuits),
)
