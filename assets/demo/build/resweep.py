"""The sweep again, from the pack alone: for a change of what is measured on the answers, where the state is long gone.

What was swept, in its order, follows from the pack's labels, manifests and list, so the answers are those that were
written then, as far as a machine rounds alike.
"""

from __future__ import annotations

from assets.demo.build import sweep
from assets.demo.build.settings import Build, from_arguments
from assets.demo.build.shared import manifest_of, read_json, read_labels
from assets.demo.build.subjects import Subject, singles


def subjects_of(build: Build) -> list[Subject]:
    """All that was swept, the profiles that were left out included."""
    pack = read_json(build.pack / "pack.json")
    found = {kind: [_subject(kind, build, name) for name in pack[f"{kind}s"]] for kind in ("cluster", "profile", "circuit")}
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
    build = from_arguments(__doc__ or "")
    for key, curve in sweep.run(build, subjects_of(build)).items():
        print(key, sweep.calibrate(curve))
        for point in curve:
            print("   ", point)
