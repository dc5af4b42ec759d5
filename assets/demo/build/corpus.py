"""Text to train on: short pieces from Debian packages whose licence allows it, fetched and unpacked, not installed.

Writes ``pieces.jsonl`` into the state folder: one piece a line with its source, its document and whether it is held
out. Whole documents are held out (a Bible chapter, a manual page, a file of the Python documentation, a run of
dictionary entries), so that no measurement is made on the neighbour of a training text. ``SOURCES.md`` lists licences.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from assets.demo.build.settings import Build, from_arguments

PACKAGES = ("wordnet-base", "bible-kjv", "bible-kjv-text", "python3.11-doc", "dict-devil", "miscfiles", "manpages")
WORDS_A_PIECE = 70
"""About 90 tokens: most pieces fit the 128 tokens of a row."""

SHARES = {"wordnet": 0.62, "bible": 0.10, "python": 0.13, "manual": 0.06, "devil": 0.05, "state": 0.04}
"""How much of the plain text comes from each source."""


@dataclass(frozen=True)
class Piece:
    """Some 70 words of a document."""

    source: str
    document: str
    text: str
    held_out: bool


def is_held_out(document: str, share: float) -> bool:
    """Whether a document is kept for measuring; depends on its name alone, so every stage agrees."""
    return int(hashlib.sha256(document.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF < share


def make(build: Build) -> Path:
    """Write the pieces, shuffled; returns their file. Does nothing when it is there."""
    target = build.state / "pieces.jsonl"
    if target.exists():
        return target
    build.state.mkdir(parents=True, exist_ok=True)
    pools = _from_packages(build) if build.packages else {"bundled": list(_bundled())}
    words = build.plain_tokens * 1.1  # a token is about 0.75 words; some of the pieces will be cut
    chosen: list[tuple[str, str, str]] = []
    for source, pool in pools.items():
        random.Random(f"{build.seed} {source}").shuffle(pool)
        room = words * SHARES.get(source, 1.0)
        for document, text in pool:
            if room <= 0:
                break
            room -= len(text.split())
            chosen.append((source, document, text))
    random.Random(build.seed).shuffle(chosen)
    scratch = target.with_suffix(".part")
    with scratch.open("w", encoding="utf-8") as file:
        for source, document, text in chosen:
            piece = Piece(source, document, text, is_held_out(document, build.held_out_share))
            file.write(json.dumps(asdict(piece), ensure_ascii=False) + "\n")
    scratch.replace(target)
    return target


def read(build: Build) -> Iterator[Piece]:
    """The pieces in their order."""
    with make(build).open(encoding="utf-8") as file:
        for line in file:
            yield Piece(**json.loads(line))


# --- sources ----------------------------------------------------------------------------------------------------------

Document = tuple[str, str]
"""A document's name and a piece of its text."""


def _from_packages(build: Build) -> dict[str, list[Document]]:
    root = build.state / "src"
    for package in PACKAGES:
        _unpack(package, build.state / "debs", root / package)
    bible = root / "bible-kjv" / "usr/bin/bible"
    data = root / "bible-kjv-text" / "usr/lib/bible.data"
    python = root / "python3.11-doc" / "usr/share/doc/python3.11/html/_sources"
    return {
        "wordnet": list(_wordnet(root / "wordnet-base" / "usr/share/wordnet")),
        "bible": list(_bible(bible, data)),
        "python": list(_python(python)),
        "manual": list(_manual(root / "manpages" / "usr/share/man")),
        "devil": list(_devil(root / "dict-devil" / "usr/share/dictd/devil.dict.dz")),
        "state": list(_state(root / "miscfiles" / "usr/share/state")),
    }


def _unpack(package: str, debs: Path, folder: Path) -> None:
    if folder.exists():
        return
    debs.mkdir(parents=True, exist_ok=True)
    if not list(debs.glob(f"{package}_*.deb")):
        subprocess.run(["apt-get", "download", package], cwd=debs, check=True)
    subprocess.run(["dpkg-deb", "-x", str(next(debs.glob(f"{package}_*.deb"))), str(folder)], check=True)


def _pieces(name: str, text: str) -> Iterator[Document]:
    """Cut a document at sentence ends into pieces of about :data:`WORDS_A_PIECE` words."""
    held: list[str] = []
    for sentence in re.split(r"(?<=[.!?:;])\s+", " ".join(text.split())):
        held += sentence.split()
        if len(held) >= WORDS_A_PIECE:
            yield name, " ".join(held[: 2 * WORDS_A_PIECE])
            held = []
    if len(held) >= 15:
        yield name, " ".join(held)


def _wordnet(folder: Path) -> Iterator[Document]:
    """Glosses by lexicographer's file, so that neighbours share a topic; a document is a run of a hundred."""
    for part in ("noun", "verb", "adj", "adv"):
        by_file: dict[str, list[str]] = {}
        for line in (folder / f"data.{part}").read_text(encoding="latin-1").splitlines():
            if line.startswith("  ") or " | " not in line:
                continue
            fields, _, gloss = line.partition(" | ")
            cells = fields.split()
            words = [cells[4 + 2 * i].replace("_", " ") for i in range(int(cells[3], 16))]
            words = [re.sub(r"\((a|p|ip)\)$", "", word) for word in words]
            by_file.setdefault(cells[1], []).append(f"{', '.join(words[:3])}: {gloss.strip()}.")
        for name, glosses in by_file.items():
            for start in range(0, len(glosses), 100):
                yield from _pieces(f"wordnet {part} {name} {start}", "\n".join(glosses[start : start + 100]))


def _bible(program: Path, data: Path) -> Iterator[Document]:
    # The program has no room for a long path: it gets a short one.
    command = [str(program), "-d", data.name, "-f", "gen1:1-rev22:21"]
    said = subprocess.run(
        command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL, cwd=data.parent
    )
    chapters: dict[str, list[str]] = {}
    for line in said.stdout.splitlines():
        if found := re.match(r"(\d?[A-Za-z]+\d+):\d+ (.*)", line):
            chapters.setdefault(found[1], []).append(found[2])
    for name, verses in chapters.items():
        yield from _pieces(f"bible {name}", " ".join(verses))


def _python(folder: Path) -> Iterator[Document]:
    for path in sorted(folder.rglob("*.rst.txt")):
        kept = []
        for paragraph in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
            if paragraph.lstrip().startswith((".. ", ":", "+-", "==", ">>>")):
                continue
            plain = re.sub(r":[\w:+-]+:`~?!?([^`<]*)(<[^`]*>)?`", r"\1", paragraph)
            kept.append(plain.replace("``", "").replace("**", ""))
        yield from _pieces(f"python {path.relative_to(folder)}", "\n".join(kept))


def _manual(folder: Path) -> Iterator[Document]:
    """The prose of manual pages: the words of their roff source, commands and fonts taken out."""
    for path in sorted(folder.glob("man[57]/*.gz")):
        lines = []
        for line in gzip.decompress(path.read_bytes()).decode("utf-8", "replace").splitlines():
            if line.startswith((".B ", ".I ", ".BR ", ".IR ")):
                line = line.split(" ", 1)[1].replace('"', "")
            elif line.startswith((".", "'")):
                continue
            lines.append(re.sub(r"\\f.|\\&|\\e|\\\(..|\\\[\w+\]|\\-", lambda m: "-" if m[0] == r"\-" else "", line))
        yield from _pieces(f"manual {path.name}", "\n".join(lines))


def _devil(path: Path) -> Iterator[Document]:
    entries = re.split(r"\n(?=[A-Z])", gzip.decompress(path.read_bytes()).decode("latin-1"))[20:]
    for start in range(0, len(entries), 10):
        yield from _pieces(f"devil {start}", "\n".join(entries[start : start + 10]))


def _state(folder: Path) -> Iterator[Document]:
    for path in sorted(folder.glob("*.gz")):
        for number, part in enumerate(gzip.decompress(path.read_bytes()).decode("latin-1").split("\n\n\n")):
            yield from _pieces(f"state {path.name} {number}", part)


def _bundled() -> Iterator[Document]:
    from engine.saes.checks import check_text

    for number, paragraph in enumerate(check_text().split("\n\n")):
        yield from _pieces(f"bundled {number}", paragraph)


if __name__ == "__main__":
    found = make(from_arguments(__doc__ or ""))
    print(found)
