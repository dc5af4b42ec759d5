"""From the bytes of an import to documents: one door per kind of import, with every check in the contract's order.

The order is: size, depth and JSON; then the kind; then the schema.
"""

from __future__ import annotations

from engine.documents.circuit import CircuitDocument, read_circuit
from engine.documents.cluster import BundleItem, read_bundle, read_cluster
from engine.documents.loading import DocumentKind, decode, require_kind
from engine.documents.profile import ProfileDocument, read_profile


def import_clusters(raw: bytes) -> tuple[BundleItem, ...]:
    """The definitions in ``raw``: one for a cluster document, up to fifty for a bundle.

    A bad definition inside a bundle is an item with its error; a bad single document raises, as a bad bundle does:
    :class:`DocumentTooLarge`, :class:`UnknownKind`, :class:`DocumentInvalid`.
    """
    document = decode(raw)
    if require_kind(document, DocumentKind.CLUSTER, DocumentKind.BUNDLE) is DocumentKind.BUNDLE:
        return read_bundle(document)
    cluster = read_cluster(document)
    return (BundleItem(cluster.definition.name, cluster),)


def import_circuit(raw: bytes) -> CircuitDocument:
    """The circuit in ``raw``; raises as :func:`import_clusters` does."""
    document = decode(raw)
    require_kind(document, DocumentKind.CIRCUIT)
    return read_circuit(document)


def import_profile(raw: bytes) -> ProfileDocument:
    """The profile in ``raw``; also raises :class:`IsClusterDocument`."""
    return read_profile(decode(raw))
