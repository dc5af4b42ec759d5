"""Models and SAEs on the shelf in words: badges, states, sizes, speeds; pure functions, one spelling for both pages."""

from __future__ import annotations

from collections.abc import Sequence

from engine.counting import MB, plural
from engine.engine import Engine
from engine.public.downloads import CANCELLED, MemoryTerms, ModelPreview
from engine.public.library import EngineKind, ModelRecord, SaeRecord, SaeStatus
from engine.public.models import LoadEstimate, LocalModel, ModelCapabilities, ModelView
from ui.kit.text import count, counted, device_name, megabytes, number_format, parameters

ENGINES = {"transformers": "transformers", "llamacpp": "llama.cpp"}
DESCRIBED = "generic"
"""The format of tools of a model whose template has none of its own."""
THINKING, FILL, IMAGES = "Thinking", "Fill in the middle", "Images"
SOURCES = {"huggingface": "from the hub", "local": "from this computer", "demo": "the demo model"}


def size(number: float | None) -> str:
    """Bytes as people say them: 98 MB, 1.4 GB."""
    return "unknown size" if number is None else megabytes(number / MB)


def in_line(facts: Sequence[str]) -> str:
    """Facts in one text, which goes on in the next line only after one of the dots between them."""
    return "\N{NO-BREAK SPACE}· ".join(each.replace(" ", "\N{NO-BREAK SPACE}") for each in facts)


def badges(view: ModelView, *, runnable: bool) -> list[tuple[str, str]]:
    """(word, tone) of what a model is and how it stands."""
    found = [(ENGINES.get(view.engine, view.engine), "quiet")]
    quantization = view.gguf_label or view.quantization
    if quantization and not view.name.endswith(f":{quantization}"):  # the name says it, and needs the room
        found.append((quantization, "quiet"))
    found.append(state(view))
    if view.locked:
        found.append(("locked", "info"))
    if not runnable:
        found.append(("cannot run here", "warn"))
    return found


def state(view: ModelView) -> tuple[str, str]:
    """(word, tone) of a model's status."""
    if is_paused(view):
        return "paused", "warn"
    if view.files_missing:
        return "files gone", "bad"
    return {
        "ready": ("on the disk", "quiet"),
        "loaded": ("loaded", "good"),
        "loading": ("loading", "info"),
        "downloading": ("downloading", "info"),
        "error": ("failed", "bad"),
    }.get(view.status, (view.status, "quiet"))


def files_gone(view: ModelView) -> str:
    """What is said of a model whose files are not where they were."""
    return f"Its files are not at {view.local_path} any more. Put them back, or choose them again where they are now."


def is_paused(view: ModelView) -> bool:
    """Whether its download was stopped by a person and can be gone on with."""
    return view.status == "error" and view.error_message == CANCELLED and is_unfinished(view)


def is_unfinished(view: ModelView) -> bool:
    """Whether its files are not all here: a download that stopped."""
    return view.source == "huggingface" and view.status == "error" and view.context_length is None


def facts(view: ModelView) -> str:
    """The small line under a model's name."""
    words = header_facts(view)
    if view.disk_size_mb:
        words.append(f"{megabytes(view.disk_size_mb)} on disk")
    if view.memory_footprint:
        # Before a load, what it takes depends on device and context: the card works that out when it is asked.
        words.append(f"{size(view.memory_footprint)} in memory")
    words.append(view.repo_id or SOURCES.get(view.source, view.source))
    return in_line(words)


def abilities(can: ModelCapabilities) -> str:
    """The line about what a model can do beyond writing text; what nobody knows yet is not said."""
    words = []
    if can.tools is not None:
        words.append("Tools (described in the prompt)" if can.tools == DESCRIBED else "Tools (own format)")
    words += [word for word, there in ((THINKING, can.thinking), (FILL, can.fim), (IMAGES, can.vision)) if there]
    if can.embeddings:
        words.append("Embeddings")
    return in_line(words)


def header_facts(model: ModelView | ModelRecord | ModelPreview) -> list[str]:
    """What is known of a model without loading it: family, parameters, window, chat template."""
    words = [model.architecture] if model.architecture else []
    if model.params:
        words.append(f"{parameters(model.params)} parameters")
    if model.context_length:
        words.append(f"window {count(model.context_length)}")
    if model.has_chat_template is not None:
        words.append("chat template" if model.has_chat_template else "no chat template")
    return words


def local_facts(found: LocalModel) -> str:
    """The line about a model that lies on this computer and is not on the shelf yet."""
    row = found.row
    words = [ENGINES[row.engine.value]]
    if row.gguf_label:
        words.append(row.gguf_label)
    words += header_facts(row)
    words.append(megabytes(row.disk_size_mb))
    if found.files > 1 and row.engine is EngineKind.LLAMACPP:
        words.append(counted(found.files, "file"))
    return in_line(words)


def transfer(here: int | None, total: int | None, speed: float | None) -> str:
    """How a download stands: 40 MB of 98 MB · 3.2 MB/s · 18 s left."""
    if not total:
        return "Waiting for its turn…"
    words = [f"{size(here or 0)} of {size(total)}"]
    if speed:
        words.append(f"{size(speed)}/s")
        words.append(f"{duration((total - (here or 0)) / speed)} left")
    return " · ".join(words)


def duration(seconds: float) -> str:
    """A while: 40 s, 3 min, 2 h 10 min."""
    whole = max(0, round(seconds))
    if whole < 90:
        return f"{whole} s"
    minutes = round(whole / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def deletion(view: ModelView) -> str:
    """What removing a model does, and what it leaves."""
    if view.disk_bytes:
        return (
            f"Delete {view.name}? Its files in the data folder ({size(view.disk_bytes)}) are deleted from the disk. "
            "Profiles, SAEs and conversations made with it stay."
        )
    place = f" at {view.local_path}" if view.local_path else ""
    return (
        f"Take {view.name} off the shelf? Its files{place} stay where they are. "
        "Profiles, SAEs and conversations made with it stay."
    )


def estimate_rows(found: LoadEstimate) -> list[tuple[str, str]]:
    """The terms of an estimate, head by head."""
    rows = [
        (f"Weights as {number_format(found.number_format)}", size(found.weights_bytes)),
        (f"Context of {counted(found.kv_tokens, 'token')}", size(found.kv_bytes)),
        ("Working memory", size(found.working_bytes)),
        ("In all", size(found.needed_bytes)),
    ]
    if found.available_bytes is not None:
        rows.append((f"Free on {device_name(found.device)}", size(found.available_bytes)))
    return rows


def hub_terms(terms: MemoryTerms) -> str:
    """The terms of an estimate from the hub in one line."""
    parts = [f"{megabytes(terms.weights_mb)} weights"]
    if terms.kv_mb is not None and terms.kv_tokens is not None:
        parts.append(f"{megabytes(terms.kv_mb)} for {counted(terms.kv_tokens, 'token')}")
    parts.append(f"{megabytes(terms.working_mb)} working memory")
    return f"about {megabytes(terms.total_mb)} in memory: {' + '.join(parts)}"


# --- SAEs -------------------------------------------------------------------------------------------------------------


def sae_state(record: SaeRecord, layers: list[int]) -> tuple[str, str]:
    """(word, tone) of an SAE's status; ``layers`` are those it is attached to."""
    if layers == [record.trained_layer]:
        return "attached", "good"
    if layers:
        return f"attached to {plural(len(layers), 'layer')} {', '.join(map(str, layers))}", "good"
    if record.status is SaeStatus.ERROR and record.error_message == CANCELLED:
        return "paused", "warn"
    return {
        SaeStatus.DOWNLOADING: ("downloading", "info"),
        SaeStatus.ERROR: ("failed", "bad"),
    }.get(record.status, ("on the disk", "quiet"))


def sae_can_resume(record: SaeRecord) -> bool:
    """Whether it is a download that stopped and can be gone on with."""
    return record.status is SaeStatus.ERROR and record.repository_id is not None and record.d_sae is None


def sae_deletion(record: SaeRecord, labels: int) -> str:
    """What removing an SAE does, and what it leaves."""
    gone = f"its {counted(labels, 'label')}" if labels else "what is known about it"
    if record.copied:
        return f"Delete {record.id}? Its files ({size(record.file_size_bytes)}) and {gone} are deleted from the disk."
    place = f" at {record.local_path}" if record.local_path else ""
    return f"Take {record.id} off the shelf? Its files{place} stay where they are; {gone} will be forgotten."


def detaching(engine: Engine, model_id: int) -> str | None:
    """What loading that model takes away, as a question; None where it takes nothing away that was attached."""
    resident, attached = engine.shelf.resident, engine.desk.state.attachments
    if resident is None or resident.record.id == model_id or not attached:
        return None
    layers = sorted({each.layer for each in attached})
    where = f"{plural(len(layers), 'layer')} {', '.join(map(str, layers))}"
    return (
        f"{resident.record.name} leaves memory for it, and with it its SAEs on {where} and what they steer. They are "
        f"offered again when {resident.record.name} is loaded again."
    )
