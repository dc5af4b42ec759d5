"""The scripts that made the demo pack: corpus, activations, SAEs, labels, sweeps, edges, documents and the report.

Each stage runs alone (``python -m assets.demo.build.harvest``), keeps its state under ``.data/demo-build/`` and goes on
where it stopped; ``python -m assets.demo.build`` runs them all. Nothing here is needed to use the pack.
"""
