"""A circuit as a whole, on held-out texts: is it needed, and is it enough?

Metric: the activation of the circuit's last features, summed over the text. Necessity: the share of it that goes when
all upstream nodes of the circuit are taken out together. Sufficiency: the share that stays when the stream at the first
layer is reduced to its mean and the circuit's own nodes there. Both against sets of control features, treated in the
same way.
"""

from __future__ import annotations

from typing import Any

import torch

from assets.demo.build.edges import Bench, Node, made_from, removed_everywhere
from assets.demo.build.settings import Build, from_arguments
from assets.demo.build.shared import fingerprint, is_made_from, note_made_from, read_json, write_json
from assets.demo.build.subjects import circuits
from engine.saes.checks import SINK_FACTOR

METRIC = "last-layer-activation@1"
NEEDED, ENOUGH = 0.7, 0.7
"""Least necessity and sufficiency for rung 3; the controls' must also be below half of them."""
CONTROL_SETS = 4

RULE = (
    f"Rung 3 needs every edge at rung 2, necessity of at least {NEEDED:g} and sufficiency of at least {ENOUGH:g}, with "
    "every control set below half of that."
)


def run(build: Build) -> dict[str, Any]:
    """Measure every circuit of which all edges passed; writes ``faithfulness.json``.

    Circuits that are in it are kept while edges, SAEs, labels and texts are the same.
    """
    torch.set_num_threads(build.threads)
    target = build.state / "faithfulness.json"
    edges = read_json(build.state / "edges.json")
    chosen = {topic: own for topic, own in circuits(edges).items() if own and all(edge["passed"] for edge in own)}
    mark = f"{made_from(build)} {fingerprint(build.state / 'edges.json')}"
    kept = target.exists() and is_made_from(build, "faithfulness", mark)
    done: dict[str, Any] = read_json(target) if kept else {}
    if not all(topic in done for topic in chosen):
        bench = Bench(build)
        for topic, own in chosen.items():
            if topic not in done:
                done[topic] = _measure(bench, own)
                print(f"faithfulness: {topic}: {done[topic]}", flush=True)
    write_json(target, done)
    note_made_from(build, "faithfulness", mark)
    return done


def _measure(bench: Bench, edges: list[dict[str, Any]]) -> dict[str, Any]:
    nodes = {Node(end["layer"], end["feature_idx"]) for edge in edges for end in (edge["up"], edge["down"])}
    last = max(node.layer for node in nodes)
    first = min(node.layer for node in nodes)
    upstream = [sorted((n for n in nodes if n.layer == layer), key=str) for layer in bench.build.layers if layer < last]
    upstream = [each for each in upstream if each]
    outputs = [node.feature for node in nodes if node.layer == last]
    start = next(node for node in nodes if node.layer == first)
    rows = bench.held_out_texts(start)
    control_sets = [
        [[Node(n.layer, bench.controls(n)[number]) for n in layer] for layer in upstream]
        for number in range(CONTROL_SETS)
    ]
    sets = [upstream, *control_sets]
    base, kept, needed = 0.0, [0.0] * len(sets), [0.0] * len(sets)
    for ids in rows:
        streams, _ = bench.model.read([ids], bench.build.layers)
        read = bench.saes[last]
        base += float(read.encode_features(streams[last], outputs)[:, 1:].sum())
        for number, one in enumerate(sets):
            x, before = streams[first], first
            for layer in one:
                at = layer[0].layer
                if at != first:
                    x = bench.model.run_from(before, x, [at])[0][at]
                x = removed_everywhere(bench.saes[at], x, [node.feature for node in layer])
                before = at
            end = bench.model.run_from(before, x, [last])[0][last]
            needed[number] += float(read.encode_features(end, outputs)[:, 1:].sum())
            end = bench.model.run_from(first, _only(bench, one[0], streams[first]), [last])[0][last]
            kept[number] += float(read.encode_features(end, outputs)[:, 1:].sum())
    necessity = [round(1 - each / base, 4) for each in needed]
    sufficiency = [round(each / base, 4) for each in kept]
    holds = (
        all(edge["passed"] for edge in edges)
        and necessity[0] >= NEEDED
        and sufficiency[0] >= ENOUGH
        and max(necessity[1:]) < NEEDED / 2
        and max(sufficiency[1:]) < ENOUGH / 2
    )
    return {
        "metric_id": METRIC,
        "necessity": necessity[0],
        "sufficiency": sufficiency[0],
        "control_necessity": necessity[1:],
        "control_sufficiency": sufficiency[1:],
        "nodes": len(nodes),
        "texts": len(rows),
        "holds": bool(holds),
    }


def _only(bench: Bench, nodes: list[Node], x: torch.Tensor) -> torch.Tensor:
    """``x`` reduced to the mean and what ``nodes`` contribute; sinks stay, the model cannot do without them."""
    sae = bench.saes[nodes[0].layer]
    features = [node.feature for node in nodes]
    rebuilt = sae.b_dec + sae.encode_features(x, features) @ sae.decoder_rows(features)
    norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    sink = norms > SINK_FACTOR * norms.median()
    sink[:, 0] = True
    return torch.where(sink, x, rebuilt)


if __name__ == "__main__":
    run(from_arguments(__doc__ or ""))
