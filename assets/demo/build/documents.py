"""Profiles, clusters and circuits as documents, with nothing in them that was not measured, and a manifest beside each.

A subject becomes a document only where the sweep found an intensity that is on topic by both measures and fluent. A
circuit's edges carry rung 2 where they passed the rule of :mod:`edges`, and 0 elsewhere; rung 3 only where the rule of
:mod:`faithfulness` holds. Every document is read back by the program's own reader before it is written.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assets.demo.build import edges as edge_stage
from assets.demo.build import faithfulness as faithfulness_stage
from assets.demo.build import figures
from assets.demo.build import sweep as sweep_stage
from assets.demo.build.settings import MODEL_ID, MODEL_NAME, Build, from_arguments
from assets.demo.build.shared import load_saes, manifest_path, read_json, read_labels, write_json
from assets.demo.build.subjects import TOTAL, Subject, circuits, load
from assets.demo.build.topics import BY_NAME, SWEEP_PROMPTS
from engine.documents.circuit import read_circuit
from engine.documents.cluster import read_cluster
from engine.documents.evidence import claims_causation
from engine.documents.profile import profile_document, read_profile
from engine.library.records import ProfileFields
from engine.saes.sae import Sae
from engine.steering.push import Push, length_of

VERSION = "6"
FORMULA = "equal-share-of-median-norm@1"
ATTACH_SET = "Demo: layers 10, 15 and 20"
MOST = {"cluster": 6, "profile": 4, "circuit": 5}
DATES = ("created_at", "updated_at", "discovered_at")


def run(build: Build) -> dict[str, Any]:
    """Write all documents, manifests and ``pack.json``; returns the index that is in it."""
    makers = {"cluster": _cluster, "profile": _profile, "circuit": _circuit}
    curves = read_json(build.state / "sweep.json")["curves"]
    context = _Context(build)
    written: dict[str, list[str]] = {f"{kind}s": [] for kind in makers}
    left_out = []
    for subject in load(build):
        calibration = sweep_stage.calibrate(curves[subject.key])
        if (calibration is None and not build.test) or len(written[f"{subject.kind}s"]) >= MOST[subject.kind]:
            left_out.append({"subject": subject.key, "why": "no usable intensity" if calibration is None else "enough"})
            continue
        calibration = calibration or {"onset": 1.0, "sweet_spot": 1.0, "cliff": 1.0, "non_monotone": False}
        document, manifest = makers[subject.kind](context, subject, calibration, curves[subject.key])
        name = f"{subject.topic}.{subject.kind}"
        folder = build.pack / f"{subject.kind}s"
        _write_document(folder / f"{name}.json", document)
        write_json(folder / f"{name}.manifest.json", manifest)
        written[f"{subject.kind}s"].append(f"{subject.kind}s/{name}.json")
    for kind in makers:
        keep_only(build.pack / f"{kind}s", {build.pack / each for each in written[f"{kind}s"]})
    index = {
        "version": VERSION,
        "model": MODEL_NAME,
        "saes": [
            {"sae_id": build.sae_id(layer), "layer": layer, "path": f"saes/layer_{layer}"} for layer in build.layers
        ],
        "labels": [f"labels/layer_{layer}.json" for layer in build.layers],
        "measured": figures.run(build),
        **written,
        "attach_set": ATTACH_SET,
    }
    write_json(build.pack / "pack.json", index)
    write_json(build.state / "left-out.json", left_out)
    return index


def _write_document(path: Path, document: dict[str, Any]) -> None:
    """Write it, unless the one that is there says the same but for its dates: then nothing has changed."""
    if not path.exists() or _undated(read_json(path)) != _undated(document):
        write_json(path, document)


def _undated(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _undated(each) for key, each in value.items() if key not in DATES}
    return [_undated(each) for each in value] if isinstance(value, list) else value


def keep_only(folder: Path, documents: set[Path]) -> None:
    """Delete what an earlier build wrote and this one did not."""
    keep = documents | {manifest_path(path) for path in documents}
    for path in folder.glob("*.json"):
        if path not in keep:
            path.unlink()


def push_of(sae: Sae, layer: int, strengths: dict[int, float], median_norm: float) -> Push:
    """How long the vector is that ``strengths`` of one layer's features add together."""
    return Push(layer, length_of(sae.delta(strengths)), median_norm)


def cluster_words(topic: str, count: int, push: Push, calibration: dict[str, Any]) -> str:
    """What a cluster says of itself."""
    return (
        f"{count} features of layer {push.layer} that fire on {topic}. At intensity 1 the vector they add is "
        f"{push.length:.1f} long, {push.share:.2f} of the layer's median norm. In a sweep the topic set in at "
        f"{calibration['onset']:g} and was strongest while fluent at {calibration['sweet_spot']:g}; "
        f"{_cliff_words(calibration)}"
    )


def added(push: Push) -> dict[str, float]:
    """A layer's length as a manifest has it."""
    assert push.share is not None
    return {"length": round(push.length, 2), "length_over_median_norm": round(push.share, 3)}


class _Context:
    """What every document needs."""

    def __init__(self, build: Build) -> None:
        self.build = build
        self.labels: dict[int, dict[int, dict[str, Any]]] = {}
        for layer, rows in read_labels(build).items():
            self.labels[layer] = {each["feature_idx"]: each for each in rows}
        self.edges = read_json(build.state / "edges.json")
        self.faithfulness = read_json(build.state / "faithfulness.json")
        self.saes = load_saes(build)
        quality = read_json(build.state / "quality.json")["layers"]
        self.norms = {layer: float(quality[str(layer)]["all"]["median_norm"]) for layer in build.layers}
        facts = read_json(build.sae_folder(build.layers[0]) / "cfg.json")
        self.d_in, self.d_sae = facts["d_in"], facts["d_sae"]
        self.now = datetime.now(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")

    def sae(self, layer: int) -> dict[str, Any]:
        """An SAE reference."""
        return {
            "mistudio_sae_id": self.build.sae_id(layer),
            "layer": layer,
            "hook_type": "residual",
            "n_features": self.d_sae,
            "d_model": self.d_in,
            "source_hint": f"miLLM Desktop demo pack, layer {layer}",
        }

    def push(self, layer: int, strengths: dict[int, float]) -> Push:
        """What a set adds at a layer at intensity 1, beside the median norm there."""
        return push_of(self.saes[layer], layer, strengths, self.norms[layer])

    def member(self, layer: int, feature: int, strength: float) -> dict[str, Any]:
        """A member with what its label says."""
        label = self.labels[layer][feature]
        return {
            "feature_idx": feature,
            "label": label["label"],
            "activation_frequency": label["density"],
            "max_activation": label["max_activation"],
            "strength": strength,
            "sign": 1,
            "meta": {
                "category": "topic",
                "label_source": "contrast between topics",
                "interpretability": label["confidence"],
                "mean_activation": label["mean_activation"],
                "top_tokens": label["top_tokens"],
            },
        }

    @property
    def provenance(self) -> dict[str, Any]:
        """Where a document comes from."""
        return {"created_at": self.now, "source_note": "Made by assets/demo/build; the numbers are in the manifest."}


def _sweep_manifest(
    context: _Context, subject: Subject, calibration: dict[str, Any], curve: list[dict[str, float]]
) -> dict[str, Any]:
    return {
        "topic": subject.topic,
        "strengths_at_intensity_1": {str(layer): row for layer, row in subject.strengths.items()},
        "added_at_intensity_1": {
            str(layer): added(context.push(layer, row)) for layer, row in subject.strengths.items()
        },
        "calibration": calibration,
        "sweep": {
            "curve": curve,
            "prompts": list(SWEEP_PROMPTS[: sweep_stage.PROMPTS]),
            "samples_a_prompt": sweep_stage.SAMPLES,
            "tokens_a_sample": sweep_stage.TOKENS,
            "sampling": {"temperature": sweep_stage.TEMPERATURE, "top_p": sweep_stage.TOP_P},
            "words": "share of the topic's words among all words of the answer",
            "features": "mean activation a token of the subject's own features, read unsteered on the answer",
            "perplexity": "of the answer by the unsteered model, after the prompt",
            "trigrams": "share of trigrams that came before in the same answer",
            "rules": {
                "onset": f"words {sweep_stage.ONSET_WORDS:g} points and features {sweep_stage.ONSET_FEATURES:g} times "
                "above unsteered",
                "fluent": f"perplexity at most {sweep_stage.FLUENT_PERPLEXITY:g} times unsteered, repeated trigrams at "
                f"most {sweep_stage.FLUENT_TRIGRAMS:g} above",
                "cliff": f"perplexity {sweep_stage.BROKEN_PERPLEXITY:g} times unsteered, or repeated trigrams "
                f"{sweep_stage.BROKEN_TRIGRAMS:g} above; the end of the dial where neither was seen",
            },
        },
    }


def _cluster(
    context: _Context, subject: Subject, calibration: dict[str, Any], curve: list[dict[str, float]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    topic = BY_NAME[subject.topic]
    ((layer, strengths),) = subject.strengths.items()
    total, push = round(sum(strengths.values()), 2), context.push(layer, strengths)
    document = {
        "kind": "mistudio.cluster-definition",
        "schema_version": "1",
        "name": f"Demo: {topic.label}",
        "narrative": cluster_words(topic.label, len(strengths), push, calibration),
        "display_token": topic.name,
        "model": {"hf_id": MODEL_ID},
        "sae": context.sae(layer),
        "members": [context.member(layer, feature, strength) for feature, strength in strengths.items()],
        "budget": {
            "B": total,
            "B_dir": total,
            "formula_id": FORMULA,
            "constants": {"sum_over_median_norm": TOTAL, **added(push)},
            "intensity": calibration["sweet_spot"],
            "intensity_range": [calibration["onset"], calibration["cliff"]],
        },
        "calibration": calibration_of(calibration, curve, f"{subject.topic}.cluster.manifest.json"),
        "provenance": context.provenance,
    }
    read_cluster(document)
    return document, _sweep_manifest(context, subject, calibration, curve)


def _profile(
    context: _Context, subject: Subject, calibration: dict[str, Any], curve: list[dict[str, float]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    topic = BY_NAME[subject.topic]
    ((layer, strengths),) = subject.strengths.items()
    steering = {feature: round(strength * calibration["sweet_spot"], 2) for feature, strength in strengths.items()}
    document = profile_document(
        ProfileFields(
            f"Demo: a touch of {topic.name}",
            f"One feature of layer {layer} that fires on {topic.label}, at the strength a sweep found best.",
            model_id=MODEL_ID,
            sae_id=context.build.sae_id(layer),
            layer=layer,
            steering=steering,
        ),
        created_at=context.now,
        updated_at=context.now,
    )
    read_profile(document)
    return document, _sweep_manifest(context, subject, calibration, curve)


def calibration_of(calibration: dict[str, Any], curve: list[dict[str, float]], manifest: str) -> dict[str, Any]:
    """The marks on the dial, as a document carries them; the figures behind them are in ``manifest``."""
    return {
        "onset": calibration["onset"],
        "sweet_spot": calibration["sweet_spot"],
        "cliff": calibration["cliff"],
        "step_budget": len(curve),
        "judge_metric_id": "topic-words+own-features@1",
        "manifest_ref": f"{manifest}#/sweep",
        "non_monotone": calibration["non_monotone"],
        "provisional": not calibration.get("cliff_seen", False),
    }


def _cliff_words(calibration: dict[str, Any]) -> str:
    if calibration.get("cliff_seen"):
        return f"from {calibration['cliff']:g} on the text broke."
    return "up to the end of the dial the text did not break."


def _circuit(
    context: _Context, subject: Subject, calibration: dict[str, Any], curve: list[dict[str, float]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    topic = BY_NAME[subject.topic]
    chosen = circuits(context.edges)[subject.topic]
    whole = context.faithfulness.get(subject.topic)
    all_passed = all(edge["passed"] for edge in chosen)
    holds = bool(whole and whole["holds"])
    name = f"{subject.topic}.circuit"
    manifest = f"{name}.manifest.json"
    layers = sorted(subject.strengths)
    edges = [_edge(edge, f"{manifest}#/edges/{i}", holds=holds) for i, edge in enumerate(chosen)]
    document = {
        "kind": "mistudio.circuit-definition",
        "schema_version": "1",
        "name": f"Demo: {topic.label} across layers {' → '.join(map(str, layers))}",
        "narrative": _circuit_words(topic.label, layers, chosen, whole, all_passed=all_passed, holds=holds),
        "model": {"hf_id": MODEL_ID},
        "saes": [context.sae(layer) for layer in layers],
        "members": [
            {"layer": layer, "member_kind": "feature_ref", "feature": context.member(layer, feature, strength)}
            for layer, row in subject.strengths.items()
            for feature, strength in row.items()
        ],
        "edges": edges,
        "budget": {
            "layers": {
                str(layer): {"B": round(sum(row.values()), 2), "B_dir": round(sum(row.values()), 2)}
                for layer, row in subject.strengths.items()
            },
            "formula_id": FORMULA,
            "intensity": calibration["sweet_spot"],
            "intensity_range": [calibration["onset"], calibration["cliff"]],
        },
        "calibration": calibration_of(calibration, curve, manifest),
        "discovery": {
            "mode": "seeded",
            "granularity": "feature",
            "corpus_ref": "SOURCES.md",
            "thresholds": {"edge": edge_stage.RULE, "circuit": faithfulness_stage.RULE},
            "split": {"chosen_on": "topic sentences", "tested_on": "held-out documents"},
            "discovered_at": context.now,
        },
        "provenance": context.provenance,
    }
    if whole is not None:
        document["faithfulness"] = {
            "necessity": whole["necessity"],
            "sufficiency": whole["sufficiency"],
            "sufficiency_k": whole["nodes"],
            "metric_id": whole["metric_id"],
            "manifest_ref": f"{manifest}#/faithfulness",
        }
    read = read_circuit(document)
    if read.rung < 2 and claims_causation(str(document["name"]) + str(document["narrative"])):
        raise ValueError(f"{name} says more than its evidence")
    others = [edge for edge in context.edges if edge["topic"] == subject.topic and edge not in chosen]
    return document, {
        "rung": read.rung,
        "edge_rule": edge_stage.RULE,
        "edges": chosen,
        "edges_tested_and_left_out": others,
        "circuit_rule": faithfulness_stage.RULE,
        "faithfulness": whole,
        **_sweep_manifest(context, subject, calibration, curve),
    }


def _edge(edge: dict[str, Any], ref: str, *, holds: bool) -> dict[str, Any]:
    rung = (3 if holds else 2) if edge["passed"] else 0
    share = edge["direct_share"]
    return {
        "up": {**edge["up"], "kind": "feature"},
        "down": {**edge["down"], "kind": "feature"},
        "type": edge["type"],
        "rung": rung,
        "tested_and_failed": [] if edge["passed"] else [2],
        "effect_size": edge["effect"],
        "weight_prior": edge["decoder_cosine"],
        "coactivation": edge["coactivation"] | {"corpus_ref": "SOURCES.md"},
        "type_signals": {"direct_path_share": share, "decoder_cosine": edge["decoder_cosine"]},
        "evidence": {
            "measure": "share of the downstream activation that goes when the upstream contribution is taken out",
            "effect_5_to_95_percent": [edge["effect_low"], edge["effect_high"]],
            "prompts": edge["texts"],
            "controls": len(edge["controls"]),
            "largest_control": edge["largest_control"],
            "direct_path_share": share,
        },
        "validation_manifest_ref": ref,
    }


def _circuit_words(
    label: str,
    layers: list[int],
    edges: list[dict[str, Any]],
    whole: dict[str, Any] | None,
    *,
    all_passed: bool,
    holds: bool,
) -> str:
    passed = sum(edge["passed"] for edge in edges)
    words = [f"Features for {label} on layers {', '.join(map(str, layers))}."]
    if all_passed:
        shares = ", ".join(f"{edge['effect']:.0%}" for edge in edges)
        words.append(
            f"Each of the {len(edges)} edges was tested on held-out texts: with the upstream feature's contribution "
            f"taken out, this share of the downstream activation went: {shares}. No matched control took as much."
        )
        direct = [edge["direct_share"] for edge in edges if edge["direct_share"] is not None]
        words.append(
            f"Between {min(direct):.0%} and {max(direct):.0%} of that is the direct residual path, which is "
            "persistence rather than computation."
        )
    else:
        words.append(
            f"Here to show what falls short: of {len(edges)} edges tested on held-out texts {passed} stood out from "
            "their controls. The features are found together; that is all the circuit as a whole can claim."
        )
    if whole is not None:
        verdict = "which holds" if holds else "which is not enough for the next rung"
        words.append(f"Necessity {whole['necessity']:.2f}, sufficiency {whole['sufficiency']:.2f}, {verdict}.")
    return " ".join(words)


def documents_of(pack: Path, kind: str) -> list[Path]:
    """The documents of a kind in a pack, without their manifests."""
    return sorted(path for path in (pack / f"{kind}s").glob("*.json") if not path.name.endswith(".manifest.json"))


if __name__ == "__main__":
    print(run(from_arguments(__doc__ or "")))
