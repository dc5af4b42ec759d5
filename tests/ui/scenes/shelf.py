"""What is on the shelf and how it is served: models, SAEs, the server, the settings, and the icon in the tray."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
from PySide6.QtCore import Qt

from engine.actions.downloading.preview import FilePreview, LevelEstimate, MemoryTerms, ModelPreview, QuantPreview
from engine.actions.downloading.saes import HubSaeFile, SaePreview
from engine.actions.models.importing import LocalModel
from engine.library.records import EngineKind, ModelRecord, ModelSource, ModelStatus
from tests.ui.scenes.studio import ROOT, Scene, Studio
from ui.context.page_context import MODELS, SAES, SERVER, SETTINGS
from ui.program.settings import SettingsPage
from ui.serve.server import ServerPage
from ui.shelf.add_models import FILES
from ui.shelf.models import ModelsPage
from ui.shelf.saes import SaesPage

PREVIEW = ModelPreview(
    repo_id="HuggingFaceTB/SmolLM2-360M-Instruct",
    revision="main",
    commit="a" * 40,
    gated=False,
    pipeline_tag="text-generation",
    architecture="LlamaForCausalLM",
    model_type="llama",
    context_length=8192,
    has_chat_template=True,
    params=361_821_120,
    files=(FilePreview("config.json", 861), FilePreview("model.safetensors", 723_674_912)),
    total_bytes=727_000_000,
    has_checkpoint=True,
    download_bytes=727_000_000,
    problem=None,
    estimates=tuple(
        LevelEstimate(level, 0.7, 0.9, MemoryTerms(weights, 83.9, 4096, weights / 10, weights * 1.1 + 83.9))
        for level, weights in (("FP16", 723.6), ("Q8", 361.8), ("Q4", 180.9))
    ),
    gguf_quants=(
        QuantPreview("Q4_K_M", ("q4.gguf",), 270_600_000, False, MemoryTerms(270.6, 83.9, 4096, 27.1, 381.6)),
        QuantPreview("Q8_0", ("q8.gguf",), 386_400_000, False, MemoryTerms(386.4, 83.9, 4096, 38.6, 508.9)),
    ),
    companions=(),
)
_QWEN: dict[str, Any] = {
    "source": ModelSource.HUGGINGFACE,
    "engine": EngineKind.LLAMACPP,
    "repo_id": "Qwen/Qwen3-4B-Instruct-2507-GGUF",
    "architecture": "qwen3",
    "params": 4_022_468_096,
}
OTHERS = (
    ModelRecord(
        "Qwen3-4B-Instruct-2507-GGUF:Q8_0",
        **_QWEN,
        gguf_label="Q8_0",
        context_length=262_144,
        has_chat_template=True,
        disk_size_mb=4280.4,
        estimated_memory_mb=5136.5,
    ),
    ModelRecord(
        "Qwen3-4B-Instruct-2507-GGUF:Q4_K_M",
        **_QWEN,
        gguf_label="Q4_K_M",
        disk_size_mb=2497.3,
        status=ModelStatus.DOWNLOADING,
    ),
    ModelRecord(
        "Phi-4-mini-instruct",
        ModelSource.HUGGINGFACE,
        EngineKind.TRANSFORMERS,
        repo_id="microsoft/Phi-4-mini-instruct",
        disk_size_mb=7672.4,
    ),
)
CUT = (
    "model-00001-of-00002.safetensors of microsoft/Phi-4-mini-instruct could not be fetched in 3 attempts: the "
    "connection was cut. 1,203 MB of it are kept. Check the network connection and start the download again; it goes "
    "on where it broke off."
)
LOCAL = ModelRecord(
    "gemma-3-270m-it:Q8_0",
    ModelSource.LOCAL,
    EngineKind.LLAMACPP,
    local_path="/models/gemma-3-270m-it-Q8_0.gguf",
    params=268_098_176,
    architecture="gemma3",
    gguf_label="Q8_0",
    context_length=32_768,
    has_chat_template=True,
    disk_size_mb=291.5,
)
OFFERED = SaePreview(
    "google/gemma-scope-2b-pt-res",
    "main",
    "google/gemma-2-2b",
    tuple(
        HubSaeFile(f"layer_{layer}/width_{width}/average_l0_{l0}/params.npz", size, layer, width)
        for layer in (0, 5, 12, 20)
        for width, l0, size in (("16k", 71, 302_000_000), ("65k", 53, 1_210_000_000))
    ),
    8,
)
TITLES = (
    "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n### Chat History:\n"
)
TAGS = "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history.\n### Chat History:\n"
ASKED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("OpenAI/Python 3.51.0", "What is a mill?", {"stream": True}),
    ("Open WebUI/0.6.41", "Why is the sea salty?", {"stream": True, "steering_intensity": 1, "user": "x"}),
    ("Open WebUI/0.6.41", TITLES, {}),
    ("Open WebUI/0.6.41", TAGS, {}),
    ("curl/8.5.0", "Hello", {"temperature": "hot"}),
    ("LangChain/1.0", "Name a colour.", {"metadata": {"run": 1}, "store": True}),
)


def _ask(studio: Studio) -> None:
    """Send what other programs send, in turn; the window's loop goes on meanwhile."""
    address = studio.stage.server.address

    def work() -> None:
        for agent, text, more in ASKED:
            body = {
                "model": studio.record.name,
                "messages": [{"role": "user", "content": text}],
                "max_tokens": 24,
                **more,
            }
            httpx.post(f"{address}/chat/completions", json=body, headers={"User-Agent": agent}, timeout=300)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    studio.until(lambda: not thread.is_alive(), "the answers")


def server_stopped(studio: Studio) -> None:
    studio.window.show_page(SERVER)
    studio.take("server-stopped")


def server(studio: Studio) -> None:
    studio.attach_demo_set()
    studio.window.show_page(SERVER)
    page = studio.window.page(SERVER)
    assert isinstance(page, ServerPage)
    _ask(studio)
    studio.until(lambda: page.requests.model.rowCount() == len(ASKED), "the requests")
    page.requests.table.selectRow(len(ASKED) - 2)
    studio.take("server")
    key = "millm-example-of-a-key-that-nobody-uses"
    studio.stage.settings.change({"API_KEY": key})
    page.share(True)
    studio.until(lambda: studio.stage.server.shared and page.access.key.text() == key, "the server on the network")
    studio.camera.settle()
    # The addresses of whoever renders the pictures are nobody's business.
    page.access.show_addresses(["http://192.168.1.4:8000/v1"], key)
    studio.take("server-shared")
    page.share(False)
    studio.until(lambda: not studio.stage.server.shared and studio.stage.server.state == "running", "the server alone")
    studio.stage.settings.change({"API_KEY": None})


def settings(studio: Studio) -> None:
    studio.stage.settings.change({"MAX_LANES": 4, "PREFIX_CACHE_MB": 256})
    studio.window.show_page(SETTINGS)
    page = studio.window.page(SETTINGS)
    assert isinstance(page, SettingsPage)
    studio.until(lambda: page.rows, "the settings")
    studio.camera.settle()
    studio.take("settings")
    page.verticalScrollBar().setValue(700)
    studio.take("settings-all")
    page.verticalScrollBar().setValue(0)


def models(studio: Studio) -> None:
    """The shelf with the demo's GGUF beside it, one model loaded, and what another would take."""
    studio.load_model()
    for file in sorted((ROOT / ".data" / "models" / "demo").rglob("*.gguf"))[:1]:
        if not any(each.local_path == str(file) for each in studio.engine.shelf.list()):
            studio.engine.models.import_local(file)
    others = [studio.engine.library.models.add(each).id for each in OTHERS]
    studio.engine.library.models.set_status(others[2], ModelStatus.ERROR, error_message=CUT)
    studio.window.show_page(MODELS)
    page = studio.window.page(MODELS)
    assert isinstance(page, ModelsPage)
    page.refresh()
    studio.until(lambda: len(page.rows) == len(studio.engine.shelf.list()) and not page._reading, "the models")
    page.rows[others[1]].show_transfer(1_140_000_000, 2_497_281_312, 8_400_000)
    page.ask_memory(studio.record.id)
    studio.until(lambda: "In all" in page.memory.estimate.rows(), "the estimate")
    page.add.show_preview(PREVIEW)
    page.add.repo.setText(PREVIEW.repo_id)
    studio.take("models")
    page.add.show_tab(FILES)
    page.add.show_local(LocalModel(Path("/models/gemma.gguf"), LOCAL, 1, None))
    studio.take("models-add-files", page.add)
    for number in others:
        studio.engine.library.models.remove(number)
    page.refresh()


def saes(studio: Studio) -> None:
    """The demo's SAEs attached, a saved set, and what a repository offers."""
    studio.attach_demo_set()
    studio.window.show_page(SAES)
    page = studio.window.page(SAES)
    assert isinstance(page, SaesPage)
    studio.until(lambda: page.rows and not page._reading, "the SAEs")
    page.add.show_preview(OFFERED)
    page.add.repo.setText(OFFERED.repository_id)
    page.add.tree.topLevelItem(0).setExpanded(True)
    page.add.leaves()[0].setCheckState(0, Qt.CheckState.Checked)
    studio.take("saes")


SCENES = (
    Scene("models", models),
    Scene("saes", saes),
    Scene("server-stopped", server_stopped),
    Scene("server", server),
    Scene("settings", settings),
)
