"""The sweep again, from the pack alone: for a change of what is measured on the answers, where the state is long gone.

    python -m assets.demo.build.resweep

What was swept, in its order, follows from the pack's labels, manifests and list, so the answers are those that were
written then, as far as a machine rounds alike.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from assets.demo.build import figures, report, sample, sweep
from assets.demo.build.documents import (
    VERSION,
    calibration_of,
    cluster_words,
    keep_only,
    push_of,
)
from assets.demo.build.settings import Build, from_arguments
from assets.demo.build.shared import load_saes, manifest_of, manifest_path, read_json, read_labels, write_json
from assets.demo.build.subjects import TOTAL, Subject, singles
from assets.demo.build.topics import BY_NAME


def run(build: Build) -> None:
    """Sweep, and write what follows from it into the pack: marks, curves, words, the report's section, the sample."""
    subjects = subjects_of(build)
    write_json(build.state / "subjects.json", [asdict(subject) for subject in subjects])
    curves = sweep.run(build, subjects)
    pack = read_json(build.pack / "pack.json")
    left_out = []
    for subject in subjects:
        path = build.pack / f"{subject.kind}s" / f"{subject.topic}.{subject.kind}.json"
        calibration = sweep.calibrate(curves[subject.key])
        if calibration is None:
            left_out.append({"subject": subject.key, "why": "no usable intensity"})
            kept = pack[f"{subject.kind}s"]
            pack[f"{subject.kind}s"] = [each for each in kept if not each.endswith(f"/{path.name}")]
        elif path.exists():
            _mark(build, path, subject, calibration, curves[subject.key])
    for kind in ("cluster", "profile", "circuit"):
        keep_only(build.pack / f"{kind}s", {build.pack / each for each in pack[f"{kind}s"]})
    write_json(build.pack / "pack.json", {**pack, "version": VERSION, "measured": figures.run(build)})
    write_json(build.state / "left-out.json", left_out)
    sample.rewrite_sweep(build)
    report.rewrite(build, curves)


def _mark(
    build: Build, path: Path, subject: Subject, calibration: dict[str, Any], curve: list[dict[str, float]]
) -> None:
    """Put what was measured into a document and its manifest."""
    document, manifest = read_json(path), manifest_of(path)
    manifest["calibration"], manifest["sweep"]["curve"] = calibration, curve
    write_json(manifest_path(path), manifest)
    if subject.kind == "profile":
        ((_, strengths),) = subject.strengths.items()
        document["steering"] = {str(i): round(s * calibration["sweet_spot"], 2) for i, s in strengths.items()}
    else:
        document["budget"]["intensity"] = calibration["sweet_spot"]
        document["budget"]["intensity_range"] = [calibration["onset"], calibration["cliff"]]
        document["calibration"] = calibration_of(calibration, curve, manifest_path(path).name)
    if subject.kind == "cluster":
        ((layer, strengths),) = subject.strengths.items()
        # The sum of the strengths is this share of the norm, see ``subjects``.
        push = push_of(load_saes(build)[layer], layer, strengths, sum(strengths.values()) / TOTAL)
        document["narrative"] = cluster_words(BY_NAME[subject.topic].label, len(strengths), push, calibration)
    write_json(path, document)


def subjects_of(build: Build) -> list[Subject]:
    """All that was swept, the profiles that were left out included."""
    pack = read_json(build.pack / "pack.json")
    found = {
        kind: [_subject(kind, build, name) for name in pack[f"{kind}s"]] for kind in ("cluster", "profile", "circuit")
    }
    profiles = {each.topic: each for each in found["profile"]}
    middle = build.layers[len(build.layers) // 2]
    ((strength,),) = {tuple(row.values()) for each in found["profile"] for row in each.strengths.values()}
    swept = singles(read_labels(build)[middle], [each.topic for each in found["cluster"]])
    return [
        *found["cluster"],
        *(profiles.get(topic, Subject("profile", topic, {middle: {feature: strength}})) for topic, feature in swept),
        *found["circuit"],
    ]


def _subject(kind: str, build: Build, name: str) -> Subject:
    manifest = manifest_of(build.pack / name)
    rows = manifest["strengths_at_intensity_1"].items()
    return Subject(kind, manifest["topic"], {int(at): {int(i): s for i, s in row.items()} for at, row in rows})


if __name__ == "__main__":
    run(from_arguments(__doc__ or ""))
