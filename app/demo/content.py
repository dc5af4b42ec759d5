"""The demo pack's contents in the library: SAEs with labels, profiles, clusters, circuits and a saved attach set.

Nothing is attached or activated. What was put in is remembered under a key of the library's state, so that a second
installation changes nothing, a newer pack replaces an older one, and a removal takes only what came from the pack.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

from app.demo.index import INDEX, STATE_KEY, digest_of, pack_folder, read_index, read_measured
from app.demo.pack import SMOLLM2
from engine.actions.saes.errors import SaeAlreadyAttached
from engine.actions.saes.labels import read_labels
from engine.counting import plural
from engine.documents.errors import ClusterNotFound, DocumentInvalid
from engine.engine import Engine
from engine.errors import NotFound
from engine.library.database import Library
from engine.library.errors import CircuitNotFound, ProfileNotFound, SaeNotFound

Progress = Callable[[float, str], None]
"""Called with 0–100 and a short phrase."""


@dataclass
class Installed:
    """Which rows came from the pack: ids by kind, and digest and version of the pack they came from.

    ``version`` is None where an early program installed it, which did not remember it.
    """

    digest: str
    version: str | None = None
    saes: list[str] = field(default_factory=list)
    profiles: list[str] = field(default_factory=list)
    clusters: list[str] = field(default_factory=list)
    circuits: list[str] = field(default_factory=list)
    attach_set: str | None = None

    @classmethod
    def of(cls, library: Library) -> Installed | None:
        """What was remembered, None when the pack is not installed."""
        value = library.state.get(STATE_KEY)
        if not isinstance(value, dict):
            return None
        # A newer program may have remembered more.
        known = {each.name for each in fields(cls)}
        return cls(**{name: each for name, each in value.items() if name in known})

    def remember(self, library: Library) -> None:
        library.state.set(STATE_KEY, vars(self))


def is_installed(library: Library, pack: Path | None = None) -> bool:
    """Whether the very pack that lies here is in the library."""
    folder = pack or pack_folder()
    there = Installed.of(library)
    return there is not None and (folder / INDEX).is_file() and there.digest == digest_of(folder)


def install_content(engine: Engine, progress: Progress | None = None, *, pack: Path | None = None) -> bool:
    """Put the pack into the library; whether anything was done. Reads files: not for a window's thread.

    What an older pack brought is taken out first, documents that are no more among them. What a person made stays: sets
    and documents that name the pack's SAEs find the new ones, which have the same ids. Raises the errors of the
    imports, and :class:`SaeAlreadyAttached` when SAEs that are attached would be replaced; then nothing has changed. A
    run cut short is finished by the next: what it made is remembered step by step.
    """
    folder = pack or pack_folder()
    say = progress or (lambda percent, phrase: None)
    if not (folder / INDEX).is_file():
        return False
    digest = digest_of(folder)
    before = Installed.of(engine.library)
    if before is not None and before.digest == digest:
        return False
    if before is not None:
        say(0, "Removing the older demo pack" if before.digest else "Removing what an unfinished run left")
        _take_out(engine, before)
    index = read_index(folder)
    # Without its digest until everything is in, so that an interrupted run is seen as one.
    there = Installed(digest="", version=str(index["version"]))
    measured = read_measured(folder, index)
    layers: list[tuple[str, int]] = []
    for number, each in enumerate(index["saes"]):
        say(10 + 20 * number, f"Adding the SAE of layer {each['layer']}")
        record, created = engine.saes.import_local(folder / each["path"], sae_id=each["sae_id"], copy=True)
        if created:
            there.saes.append(record.id)
            there.remember(engine.library)
        if (figures := measured.get(str(each["layer"]))) is not None:
            # So that the first feature's strength and the end of its dial are in proportion before anything is read.
            engine.measurer.take_figures(
                record.id,
                figures,
                model_name=index["model"],
                repo_id=SMOLLM2.repo_id,
                layer=each["layer"],
            )
        layers.append((record.id, each["layer"]))
        engine.saes.import_labels(record.id, read_labels(folder / index["labels"][number]).labels)
    say(75, "Adding profiles, clusters and circuits")
    for name in index["profiles"]:
        profile = engine.profiles.import_document((folder / name).read_bytes(), on_conflict="rename")
        there.profiles.append(profile.record.id)
        there.remember(engine.library)
    for name in index["clusters"]:
        (item,) = engine.clusters.import_document((folder / name).read_bytes(), on_conflict="rename").results
        if item.profile_id is None:
            raise DocumentInvalid(f"The demo pack's {name} was refused: {item.error}.")
        there.clusters.append(item.profile_id)
        there.remember(engine.library)
    for name in index["circuits"]:
        imported = engine.circuits.import_document((folder / name).read_bytes(), on_conflict="rename", origin="demo")
        there.circuits.append(imported.id)
        there.remember(engine.library)
    engine.attachments.save_set(index["attach_set"], layers)
    there.attach_set = index["attach_set"]
    there.digest = digest
    there.remember(engine.library)
    say(100, "The demo pack is in the library")
    return True


def remove_content(engine: Engine) -> bool:
    """Take out what came from the pack, and only that; whether there was anything.

    Raises :class:`SaeAlreadyAttached` while one of its SAEs is attached.
    """
    there = Installed.of(engine.library)
    if there is None:
        return False
    _take_out(engine, there)
    return True


def own_documents(engine: Engine) -> list[str]:
    """Names of profiles, clusters and circuits that name one of the pack's SAEs and did not come with it."""
    there = Installed.of(engine.library)
    if there is None:
        return []
    found = [
        each.name
        for each in engine.library.profiles.list()
        if each.sae_id in there.saes and each.id not in (*there.profiles, *there.clusters)
    ]
    for each in engine.library.circuits.list().circuits:
        named = {str(sae.get("mistudio_sae_id")) for sae in json.loads(each.definition).get("saes") or []}
        if each.id not in there.circuits and named & set(there.saes):
            found.append(each.name)
    return sorted(found)


def _require_detached(engine: Engine, there: Installed) -> None:
    """Before anything is taken out: an attached SAE cannot be replaced."""
    attached = [each.layer for each in engine.desk.state.attachments if each.sae_id in there.saes]
    if attached:
        layers = ", ".join(map(str, sorted(attached)))
        raise SaeAlreadyAttached(
            f"SAEs of the demo pack are attached ({plural(len(attached), 'layer')} {layers}), so they cannot be "
            "replaced or removed.",
            details={"layers": sorted(attached)},
            remedy="Detach them first.",
        )


def _take_out(engine: Engine, there: Installed) -> None:
    """Each step forgives what a person has removed already."""
    _require_detached(engine, there)
    for circuit in there.circuits:
        with suppress(CircuitNotFound):
            engine.circuits.delete(circuit)
    for cluster in there.clusters:
        with suppress(ClusterNotFound, ProfileNotFound):
            engine.clusters.delete(cluster)
    for profile in there.profiles:
        with suppress(ProfileNotFound):
            engine.profiles.delete(profile)
    for sae in there.saes:
        with suppress(SaeNotFound):
            engine.saes.delete(sae)
    if there.attach_set is not None:
        with suppress(NotFound):
            engine.library.attach_sets.remove(there.attach_set)
    engine.library.state.remove(STATE_KEY)
