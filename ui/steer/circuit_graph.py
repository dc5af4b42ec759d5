"""A circuit as a graph to be drawn: nodes with labels, edges with their evidence, and where each stands. No widgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import networkx as nx

from engine.public.documents import CircuitDocument, Edge, Member, Node
from ui.kit.steering_text import signed
from ui.steer.circuit_text import edge_evidence, edge_words
from ui.steer.member_chips import member_told

STEP_X, STEP_Y = 256.0, 104.0
"""Distance between neighbours in a layer, and between layers, in scene units."""


@dataclass(frozen=True)
class GraphNode:
    """A feature, or a cluster that was not written out. ``member``: the circuit steers it.

    ``greatest`` is the largest activation its author saw.
    """

    key: str
    layer: int
    index: int | None
    name: str
    strength: float | None
    greatest: float | None
    member: bool
    told: tuple[str, ...]
    x: float = 0.0
    y: float = 0.0

    def said(self) -> str:
        """The node in one sentence."""
        what = f"#{self.index} {self.name}" if self.index is not None else f"cluster {self.name}"
        steered = f", strength {signed(self.strength)} at λ 1" if self.strength is not None else ""
        outside = "" if self.member else ", named by an edge and not a member"
        return f"Layer {self.layer}: {what}{steered}{outside}"


@dataclass(frozen=True)
class GraphEdge:
    """From ``up`` to ``down``, keys of nodes. ``effect`` is None where none was measured."""

    up: str
    down: str
    rung: int
    effect: float | None
    told: tuple[str, ...]
    span: int = 1

    def said(self, nodes: Mapping[str, GraphNode]) -> str:
        """The edge and its evidence in one line."""
        ends = f"{_end(nodes[self.up])} → {_end(nodes[self.down])}"
        return " · ".join((ends, edge_words(self.rung), *self.told))


@dataclass(frozen=True)
class CircuitGraph:
    """Nodes by key, in the document's order, and edges. ``layers`` are (number, y), from the bottom up."""

    nodes: Mapping[str, GraphNode]
    edges: tuple[GraphEdge, ...]
    layers: tuple[tuple[int, float], ...]


def graph_of(document: CircuitDocument, labels: Mapping[tuple[int, int], str] | None = None) -> CircuitGraph:
    """The graph of a circuit; ``labels`` (layer, feature) stand in where the document has none."""
    nodes: dict[str, GraphNode] = {}
    for member in document.definition.members:
        for feature in member.features:
            key = _key(member.layer, feature.feature_idx)
            nodes.setdefault(key, _feature(member.layer, feature, labels or {}, member.cluster_name))
        if not member.features:
            key = _cluster_key(member.layer, member.cluster_profile_id)
            name = member.cluster_name or member.cluster_profile_id or "without a name"
            nodes.setdefault(key, GraphNode(key, member.layer, None, name, None, None, True, ()))
    for edge in document.definition.edges:
        for end in (edge.up, edge.down):
            key = key_of(end)
            if key not in nodes:
                nodes[key] = _outsider(key, end, labels or {})
    return _placed(nodes, document.definition.edges)


def key_of(node: Node) -> str:
    """The key of an edge's end."""
    if node.feature_idx is not None:
        return _key(node.layer, node.feature_idx)
    return _cluster_key(node.layer, node.cluster_profile_id)


def _key(layer: int, index: int) -> str:
    return f"{index}@{layer}"


def _cluster_key(layer: int, profile_id: str | None) -> str:
    return f"cluster {profile_id or ''}@{layer}"


def _feature(layer: int, member: Member, labels: Mapping[tuple[int, int], str], cluster: str | None) -> GraphNode:
    index = member.feature_idx
    told = member_told(member)
    if cluster:
        told = (f"Of the cluster {cluster}", *told)
    name = member.label or labels.get((layer, index)) or "no label"
    return GraphNode(
        _key(layer, index), layer, index, name, member.directional_strength, member.max_activation, True, told
    )


def _outsider(key: str, end: Node, labels: Mapping[tuple[int, int], str]) -> GraphNode:
    index = end.feature_idx
    name = end.cluster_profile_id or "no label" if index is None else labels.get((end.layer, index)) or "no label"
    return GraphNode(key, end.layer, index, name, None, None, False, ())


def _placed(nodes: dict[str, GraphNode], edges: list[Edge]) -> CircuitGraph:
    graph = nx.DiGraph()
    for node in nodes.values():
        graph.add_node(node.key, layer=node.layer)
    found = nx.multipartite_layout(graph, subset_key="layer", align="horizontal")
    levels = sorted({node.layer for node in nodes.values()})
    rank = {layer: place for place, layer in enumerate(levels)}
    rows = {layer: [node.key for node in nodes.values() if node.layer == layer] for layer in levels}
    # From left to right as the document has them.
    across = {layer: sorted(float(found[key][0]) for key in row) for layer, row in rows.items()}
    # The layout is scaled to a unit square; neighbours are set apart by a fixed distance again.
    gaps = [right - left for row in across.values() for left, right in pairwise(row)]
    wide = STEP_X / min(gaps) if gaps else 0.0
    x_of = {key: x * wide for layer, row in rows.items() for key, x in zip(row, across[layer], strict=True)}
    standing = {key: replace(node, x=x_of[key], y=-rank[node.layer] * STEP_Y) for key, node in nodes.items()}
    drawn = tuple(
        GraphEdge(
            key_of(edge.up),
            key_of(edge.down),
            edge.evidence_rung,
            edge.effect_size,
            edge_evidence(edge),
            rank[edge.down.layer] - rank[edge.up.layer],
        )
        for edge in edges
    )
    return CircuitGraph(standing, drawn, tuple((layer, -rank[layer] * STEP_Y) for layer in levels))


def _end(node: GraphNode) -> str:
    what = f"#{node.index}" if node.index is not None else node.name
    return f"{what} (layer {node.layer})"
