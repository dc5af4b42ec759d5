"""Everything in order: ``python -m assets.demo.build``. Goes on where it stopped; ``--test FOLDER`` is a tiny run."""

from __future__ import annotations

from assets.demo.build import (
    chats,
    corpus,
    documents,
    edges,
    faithfulness,
    harvest,
    labels,
    quality,
    report,
    sample,
    sweep,
    training,
)
from assets.demo.build.settings import Build, from_arguments


def run(build: Build) -> None:
    """All stages; a stage that is complete returns at once where its result is on disk."""
    corpus.make(build)
    harvest.harvest(build)
    chats.make(build)
    if not (build.state / "training.json").exists():
        training.train(build)
    quality.run(build)
    labels.run(build)
    edges.run(build)
    faithfulness.run(build)
    sweep.run(build)
    documents.run(build)
    sample.run(build)
    print(report.run(build).read_text(encoding="utf-8"))


if __name__ == "__main__":
    run(from_arguments(__doc__ or ""))
