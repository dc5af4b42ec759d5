"""Models of other programs, in the layouts those programs use."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from engine.models.inspection.local_caches import CachePaths, find_models
from tests.pipes import pipe

COMMIT = "a" * 40
DIGEST = "b" * 64


@pytest.fixture
def places(tmp_path: Path) -> CachePaths:
    return CachePaths((tmp_path / "hub",), (tmp_path / "studio",), (tmp_path / "ollama",))


def put(path: Path, data: bytes = b"GGUF....") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_the_hugging_face_cache(places: CachePaths, tiny_checkpoint: Path) -> None:
    folder = places.hub[0] / "models--made--tiny"
    blobs = folder / "blobs"
    blobs.mkdir(parents=True)
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(tiny_checkpoint.iterdir())):
        shutil.copy(path, blobs / str(number))
        (snapshot / path.name).symlink_to(blobs / str(number))
    put(snapshot / "tiny-Q8_0.gguf")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    put(places.hub[0] / "models--made--half" / "snapshots" / "c" / "config.json", b"{}")
    put(places.hub[0] / "datasets--made--data" / "snapshots" / "c" / "model.safetensors", b"{}")
    found = find_models((), places)
    assert [(each.name, each.kind, each.path, each.on_shelf) for each in found] == [
        ("made/tiny", "transformers", snapshot, False),
        ("made/tiny:Q8_0", "gguf", snapshot / "tiny-Q8_0.gguf", False),
    ]
    assert found[0].size_bytes == 8 + sum(path.stat().st_size for path in tiny_checkpoint.iterdir())
    # What the library has is said to be there, by whichever path.
    assert [each.on_shelf for each in find_models([str(snapshot)], places)] == [True, False]
    assert [each.on_shelf for each in find_models([os.path.realpath(found[1].path)], places)] == [False, True]


def test_what_would_make_a_reader_wait_is_passed_over(places: CachePaths) -> None:
    snapshot = places.hub[0] / "models--made--tiny" / "snapshots" / COMMIT
    put(snapshot / "tiny-Q8_0.gguf")
    pipe(snapshot / "other-Q8_0.gguf")
    pipe(places.hub[0] / "models--made--tiny" / "refs" / "main")
    library = places.ollama[0] / "manifests" / "registry.ollama.ai" / "library" / "smol"
    pipe(library / "latest")
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{DIGEST}"}]
    put(library / "135m", json.dumps({"layers": layers}).encode())
    pipe(places.ollama[0] / "blobs" / f"sha256-{DIGEST}")
    assert [each.name for each in find_models((), places)] == ["made/tiny:Q8_0"]


def test_lm_studio(places: CachePaths) -> None:
    studio = places.lm_studio[0]
    put(studio / "made" / "tiny-GGUF" / "tiny-Q4_K_M.gguf")
    put(studio / "made" / "tiny-GGUF" / "mmproj-F16.gguf")
    for number in (1, 2):
        put(studio / "made" / "big" / f"big-Q8_0-0000{number}-of-00002.gguf")
    put(studio / "made" / "part" / "part-Q8_0-00001-of-00002.gguf")  # the other half is still being fetched
    found = find_models((), places)
    assert [(each.name, each.origin, each.size_bytes) for each in found] == [
        ("made/big:Q8_0", "LM Studio", 16),
        ("made/tiny-GGUF:Q4_K_M", "LM Studio", 8),
    ]
    assert found[0].path.name == "big-Q8_0-00001-of-00002.gguf"


def test_ollama(places: CachePaths) -> None:
    root = places.ollama[0]
    blob = put(root / "blobs" / f"sha256-{DIGEST}")
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{DIGEST}", "size": 8}
    registry = root / "manifests" / "registry.ollama.ai"
    put(registry / "library" / "tiny" / "1b", json.dumps({"layers": [layer]}).encode())
    put(
        registry / "someone" / "other" / "latest",
        json.dumps({"layers": [{**layer, "digest": "sha256:" + "0" * 64}]}).encode(),
    )
    put(registry / "library" / "broken" / "latest", b"{")
    put(
        registry / "library" / "evil" / "latest",
        json.dumps({"layers": [{**layer, "digest": "sha256:../../x"}]}).encode(),
    )
    (found,) = find_models((), places)
    assert (found.name, found.path, found.kind, found.origin) == ("tiny:1b", blob, "gguf", "Ollama")


def test_nothing_and_system_folders(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert find_models((), CachePaths((nowhere,), (nowhere,), (nowhere,))) == ()
    link = tmp_path / "link"
    link.symlink_to("/etc")
    assert find_models((), CachePaths((), (link, Path("/proc")), ())) == ()


def test_the_usual_places(tmp_path: Path) -> None:
    usual = CachePaths.usual({"HF_HOME": "/h", "OLLAMA_MODELS": "/o"}, tmp_path)
    assert usual.hub == (Path("/h/hub"), tmp_path / ".cache" / "huggingface" / "hub")
    assert usual.ollama[:2] == (Path("/o"), tmp_path / ".ollama" / "models")
    assert usual.lm_studio == (tmp_path / ".lmstudio" / "models", tmp_path / ".cache" / "lm-studio" / "models")
