"""``REPORT.md`` with two drawings: what was reached, in numbers, and what was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assets.demo.build import edges as edge_stage
from assets.demo.build import faithfulness as faithfulness_stage
from assets.demo.build import fresh, plots, sample, sweep
from assets.demo.build.documents import documents_of
from assets.demo.build.settings import MODEL_NAME, Build, from_arguments
from assets.demo.build.shared import manifest_of, read_json, read_labels
from assets.demo.build.subjects import FIRST
from engine.documents.circuit import read_circuit
from engine.documents.evidence import evidence_words

Y_LABEL = "features, perplexity: of the largest; words, trigrams: share of the answer"
VARIANCE_TARGET, LOSS_TARGET, TOKENS_TARGET = 0.75, 0.93, 600_000


def run(build: Build) -> Path:
    """Write the report and its drawings into the pack; returns the report's path."""
    target = build.pack / "REPORT.md"
    quality = read_json(build.state / "quality.json")
    edges = read_json(build.state / "edges.json")
    curves = read_json(build.state / "sweep.json")["curves"]
    whole = read_json(build.state / "faithfulness.json")
    sections = [
        _head(build, quality),
        _saes(build, quality),
        _fresh(build),
        _labels(build),
        _steering(build, curves),
        _edges(build, edges),
        _circuits(build, whole),
        _again(build),
        _limits(),
    ]
    target.write_text("\n".join(each for each in sections if each), encoding="utf-8")
    return target


def _head(build: Build, quality: dict[str, Any]) -> str:
    training, tokens = quality["training"], quality["harvested_tokens"]
    return f"""# The demo pack: what was measured

Three top-k SAEs of {MODEL_NAME} at layers {", ".join(map(str, build.layers))} ({build.d_sae} features, k = {build.k}, float16),
with labels, profiles, clusters and circuits. Written by `python -m assets.demo.build`; sources and licences are in
[SOURCES.md](SOURCES.md).

- Harvested: {tokens["plain"]:,} tokens of packages' texts and {tokens["chat"]:,} of the model's own chats, attention sinks left out.
- Trained on {training["tokens"]:,} of them in {training["steps"]:,} steps of {training["batch"]}: {training["epochs"]:.1f} epochs. About {build.held_out_share:.0%} of the documents were held out
  whole: the SAEs' figures, the edges and the circuits' figures are from those. Labels' densities and confidences are from a sample of
  all that was harvested, the steering figures from fresh answers of the model.
- {_aim(sum(tokens.values()))}
"""


def _aim(found: int) -> str:
    if found >= TOKENS_TARGET:
        return f"The aim of {TOKENS_TARGET:,} tokens was reached."
    return f"**Short of the aim** of {TOKENS_TARGET:,} tokens: {found:,} were harvested in the time there was."


def _saes(build: Build, quality: dict[str, Any]) -> str:
    rows = [
        "## SAEs",
        "",
        "| layer | variance explained | packages' texts | chats | loss recovered | against the mean | L0 | dead | norm | MB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    misses = []
    for layer in build.layers:
        facts = quality["layers"][str(layer)]
        loss = facts["loss"]
        plain, chat = (facts.get(kind, {}).get("variance_explained") for kind in ("plain", "chat"))
        rows.append(
            f"| {layer} | {facts['all']['variance_explained']:.3f} | {_number(plain)} | {_number(chat)} | "
            f"{loss['recovered_of_zero']:.3f} | {loss['recovered_of_mean']:.3f} | {facts['all']['l0']:.1f} | "
            f"{facts['dead_on_training_sample']} | {facts['all']['median_norm']:.0f} | {facts['bytes'] / 1e6:.1f} |"
        )
        if facts["all"]["variance_explained"] < VARIANCE_TARGET:
            misses.append(f"variance explained at layer {layer}")
        if loss["recovered_of_zero"] < LOSS_TARGET:
            misses.append(f"loss recovered at layer {layer}")
    first = quality["layers"][str(build.layers[0])]
    verdict = (
        f"**Short of the aim** (variance explained {VARIANCE_TARGET}, loss recovered {LOSS_TARGET}): {'; '.join(misses)}."
        if misses
        else f"The aim, {VARIANCE_TARGET} of the variance and {LOSS_TARGET} of the loss, was reached on every layer."
    )
    rows += [
        "",
        f"Variance explained is over {first['all']['tokens']:,} held-out tokens. Loss recovered compares the next-token loss on "
        f"{first['loss']['texts']} held-out texts with the stream rebuilt by the SAE to its being replaced by zero (and, stricter, by "
        "the mean). *Dead* are features that fired on none of a sample of the training tokens; *norm* is the stream's median.",
        "",
        verdict,
        "",
        "The three were trained side by side from one seed on the same batches, so that many indices mean the same on every "
        "layer. An edge between two such features is marked persistence.",
        "",
    ]
    return "\n".join(rows)


def _fresh(build: Build) -> str:
    """The SAEs on texts from none of their sources, where they were measured."""
    path = build.pack / fresh.NAME
    if not path.exists():
        return ""
    found = read_json(path)
    rows = [
        "### On other texts",
        "",
        "The held-out texts above are of the training texts' own kinds. On texts from none of their sources less is explained:",
        "",
        "| layer | news | chats |",
        "|---|---|---|",
    ]
    for layer, kinds in found["layers"].items():
        rows.append(
            f"| {layer} | "
            + " | ".join(f"{kinds[kind]['variance_explained']:.3f}" for kind in ("news", "chats"))
            + " |"
        )
    rows += ["", f"News: {found['news']}. Chats: {found['chats']}.", ""]
    return "\n".join(rows)


def rewrite(build: Build, curves: dict[str, list[dict[str, float]]]) -> None:
    """Put what the sweep and the fresh texts gave into the report that is there; the rest stays as it is."""
    target = build.pack / "REPORT.md"
    text = target.read_text(encoding="utf-8")
    head, _, rest = text.partition("\n## Labels")
    labels, _, rest = rest.partition("\n## Steering")
    _, _, edges = rest.partition("\n## Edges")
    saes = head.partition("\n### On other texts")[0].rstrip("\n") + "\n"
    sections = [saes, _fresh(build), f"## Labels{labels}", _steering(build, curves), f"## Edges{edges}"]
    target.write_text("\n".join(each for each in sections if each), encoding="utf-8")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _labels(build: Build) -> str:
    rows = ["## Labels", "", "| layer | labels | by contrast | by token | median confidence |", "|---|---|---|---|---|"]
    for layer, labels in read_labels(build).items():
        contrast = sum(each["how"] == "contrast" for each in labels)
        sure = sorted(each["confidence"] for each in labels if each["confidence"] is not None)
        middle = f"{sure[len(sure) // 2]:.2f}" if sure else "–"
        rows.append(f"| {layer} | {len(labels)} | {contrast} | {len(labels) - contrast} | {middle} |")
    rows += [
        "",
        "*By contrast*: on for eight sentences on a topic, off for the others'; confidence is the share of the 40 strongest "
        "places in the corpus that lie in texts with the topic's words, beyond chance. *By token*: the share of the 40 strongest "
        "places that are one token. A label says when a feature fires, not all it does.",
        "",
    ]
    return "\n".join(rows)


def _steering(build: Build, curves: dict[str, list[dict[str, float]]]) -> str:
    used = [
        f"{kind} {manifest_of(path)['topic']}"
        for kind in ("cluster", "profile", "circuit")
        for path in documents_of(build.pack, kind)
    ]
    rows = [
        "## Steering",
        "",
        "| subject | onset | sweet spot | cliff | topic words, unsteered → sweet spot | own features | perplexity | trigrams |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for key in used:
        calibration, curve = sweep.calibrate(curves[key]), curves[key]
        if calibration is None:
            continue
        base = curve[0]
        sweet = next(point for point in curve if point["intensity"] == calibration["sweet_spot"])
        cliff = f"{calibration['cliff']:g}" + ("" if calibration["cliff_seen"] else " (not reached)")
        rows.append(
            f"| {key} | {calibration['onset']:g} | {calibration['sweet_spot']:g} | {cliff} | {base['words']:.1%} → {sweet['words']:.1%} | "
            f"{base['features']:.1f} → {sweet['features']:.1f} | {base['perplexity']:.1f} → {sweet['perplexity']:.1f} | "
            f"{base['trigrams']:.2f} → {sweet['trigrams']:.2f} |"
        )
    rows += [
        "",
        f"Each point is {sweep.PROMPTS * sweep.SAMPLES} answers of up to {sweep.TOKENS} tokens to questions that lean to no topic: "
        "a coarse measure. Topic words are counted by a list; own features are read on the *unsteered* model's reading of the "
        "finished text, after the whole prompt it was written to, and so is the perplexity.",
        "",
        f"Fluent is a perplexity of at most {sweep.FLUENT_PERPLEXITY:g} times the unsteered one's; the cliff is {sweep.BROKEN_PERPLEXITY:g} times. The "
        "latter was lowered from 4 after a first, smaller sweep of earlier SAEs had been seen; it stood when these were swept.",
        "",
        *_left_out(build),
        "![dial](report-dial.svg)",
        "",
    ]
    shown = [f"cluster {topic}" for topic in FIRST if f"cluster {topic}" in used]
    series: list[plots.Series] = []
    for key in shown or used[:1]:
        curve = curves[key]
        most = max(point["features"] for point in curve) or 1.0
        worst = max(point["perplexity"] for point in curve)
        name = key.removeprefix("cluster ")
        series.append((f"{name}: words × 5", [(p["intensity"], min(1.0, 5 * p["words"])) for p in curve]))
        series.append((f"{name}: features", [(p["intensity"], p["features"] / most) for p in curve]))
        series.append((f"{name}: perplexity", [(p["intensity"], p["perplexity"] / worst) for p in curve]))
        series.append((f"{name}: trigrams", [(p["intensity"], p["trigrams"]) for p in curve]))
    if series:
        drawing = plots.lines("The dial against topic and fluency", "intensity λ", Y_LABEL, series)
        (build.pack / "report-dial.svg").write_text(drawing, encoding="utf-8")
    return "\n".join(rows)


def _left_out(build: Build) -> list[str]:
    path = build.state / "left-out.json"
    names = [each["subject"] for each in read_json(path) if each["why"] != "enough"] if path.exists() else []
    if not names:
        return []
    return [
        f"Swept and left out, because no intensity was on topic by both measures and fluent: {', '.join(names)}.",
        "",
    ]


def _edges(build: Build, edges: list[dict[str, Any]]) -> str:
    rows = [
        "## Edges",
        "",
        edge_stage.RULE,
        "",
        "| topic | edge | effect | 5–95 % | largest control | direct path | type | texts | passed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for edge in edges:
        share = "–" if edge["direct_share"] is None else f"{edge['direct_share']:.0%}"
        rows.append(
            f"| {edge['topic']} | {_name(edge)} | {edge['effect']:.0%} | {edge['effect_low']:.0%} to {edge['effect_high']:.0%} | "
            f"{edge['largest_control']:.0%} | {share} | {edge['type']} | {edge['texts']} | {'yes' if edge['passed'] else 'no'} |"
        )
    passed = sum(edge["passed"] for edge in edges)
    least = edge_stage.LEAST_EFFECT
    near = [
        f"{each['topic']} {_name(each)}, {each['effect']:.4f}"
        for each in edges
        if least - 0.005 <= each["effect"] < least
    ]
    rounded = f"Rounded to {least:.0%} here and below it in truth: {'; '.join(near)}. " if near else ""
    rows += [
        "",
        f"{passed} of {len(edges)} edges passed. {rounded}Every edge that was tested is in this table. *Direct path* is the part of the effect "
        "that runs through the residual stream alone; "
        "from half on, or where the two decoder rows point the same way, the edge is marked persistence; that mark "
        "was introduced after the figures of a first run, on earlier SAEs, had been seen. An edge with no relation would "
        f"beat {edge_stage.CONTROLS} controls by chance once in {edge_stage.CONTROLS + 1}, which the least effect and the resampling make rarer. "
        f"On those earlier SAEs 14 texts were tried for each edge at first, of which often fewer than {edge_stage.LEAST_TEXTS} had the downstream "
        f"feature on; since then it is {edge_stage.TEXTS}. The rule stayed as it was.",
        "",
        "![edges](report-edges.svg)",
        "",
    ]
    if edges:
        marks = [
            (f"{e['topic']} {e['up']['layer']}→{e['down']['layer']}", e["effect"], e["controls"], e["passed"])
            for e in edges
        ]
        drawing = plots.against_controls(
            "Edges against their controls", "share of downstream activation removed", marks
        )
        (build.pack / "report-edges.svg").write_text(drawing, encoding="utf-8")
    return "\n".join(rows)


def _name(edge: dict[str, Any]) -> str:
    up, down = edge["up"], edge["down"]
    return f"{up['layer']}:{up['feature_idx']} → {down['layer']}:{down['feature_idx']}"


def _circuits(build: Build, whole: dict[str, Any]) -> str:
    rows = [
        "## Circuits",
        "",
        faithfulness_stage.RULE,
        "",
        "| circuit | rung | necessity | sufficiency | controls |",
        "|---|---|---|---|---|",
    ]
    claimed = 0
    for path in documents_of(build.pack, "circuit"):
        read = read_circuit(read_json(path))
        claimed = max(claimed, read.rung)
        facts = whole.get(path.name.split(".")[0])
        if facts is None:
            numbers = "not measured | not measured | –"
        else:
            most = f"necessity ≤ {max(facts['control_necessity']):.2f}, sufficiency ≤ {max(facts['control_sufficiency']):.2f}"
            numbers = f"{facts['necessity']:.2f} | {facts['sufficiency']:.2f} | {most}"
        rows.append(f"| {path.stem} | {read.rung}: {evidence_words(read.rung, read.only_persistence)} | {numbers} |")
    rows += [
        "",
        "No circuit claims rung 3: the measurements do not carry it."
        if claimed < 3
        else "Rung 3 was measured, see above.",
        "",
    ]
    return "\n".join(rows)


def _again(build: Build) -> str:
    path = build.pack / sample.NAME
    found = read_json(path) if path.exists() else {}
    words = []
    if "chats" in found:
        words.append(f"{len(found['chats']['texts'])} held-out chats with each SAE's figures on them")
    if "edge" in found:
        circuit = found["edge"]["circuit"].removesuffix(".json")
        words.append(f"all texts that the first edge of {circuit} was tested on")
    if "sweep" in found:
        words.append(f"what the sweep noted of each answer for the cluster {found['sweep']['topic']} at its sweet spot")
    if not words:
        return ""
    return f"""## To measure it again

[{sample.NAME}]({sample.NAME}) holds {"; ".join(words)}. With the model that is all it takes; the program's tests do it.
"""


def _limits() -> str:
    return """## What this does not show

- One model, one small corpus, one seed. Nothing here was repeated with another seed.
- The topic's words and the sentences that chose the features were written by the same hand.
- Held-out texts come from the same kinds of sources as the training texts.
- An edge says that taking out the upstream contribution lowers the downstream activation, on texts in which the upstream
  feature is strong. It does not say that nothing else feeds the downstream feature.
"""


if __name__ == "__main__":
    print(run(from_arguments(__doc__ or "")))
