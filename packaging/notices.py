"""The notices of everything an installer carries: ``python packaging/notices.py FILE [LIBRARY ...]``.

Every distribution that the program needs is listed with its version, its licence, where its source is, and the licence
texts it brings. Qt, whose wheels bring none, llama.cpp and Python itself are added, and so are the packages of the
system that the given libraries belong to. A distribution for which no text is to be had ends the build.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
TEXTS = ROOT / "assets" / "licences"
PROGRAM = "millm-desktop"
EXTRAS = ("gguf",)
NAMES = re.compile(r"licen[cs]e|copying|notice|authors", re.IGNORECASE)
RULE = "=" * 100

LGPL = (
    "Qt and its Python bindings are used under the GNU Lesser General Public License, version 3, as the shared\n"
    "libraries of the package on PyPI, unchanged. You may replace them: put other builds of the same major version in\n"
    "place of the files in the folders PySide6 and shiboken6 of this program. The source of Qt is at\n"
    "https://download.qt.io/official_releases/qt/ and that of the bindings at\n"
    "https://download.qt.io/official_releases/QtForPython/pyside6/, each in a folder of its version. Qt carries code\n"
    "of others, which https://doc.qt.io/qt-6/licenses-used-in-qt.html lists."
)
ADDED: dict[str, tuple[tuple[str, ...], str]] = {
    "pyside6-essentials": (("LGPL-3.0.txt", "GPL-3.0.txt"), LGPL),
    "shiboken6": (("LGPL-3.0.txt", "GPL-3.0.txt"), LGPL),
    "llama-cpp-python": (("llama.cpp.txt",), "Carries llama.cpp and ggml, https://github.com/ggml-org/llama.cpp."),
    "nvidia-ml-py": (("nvidia-ml-py.txt",), ""),
    "tokenizers": (("../../LICENSE",), ""),
}
"""Texts from :data:`TEXTS` and words for what brings none of its own."""


@dataclass(frozen=True)
class Notice:
    """One thing that is carried. ``texts``: its licence texts, at least one."""

    name: str
    version: str
    licence: str
    source: str
    texts: tuple[str, ...]
    words: str = ""


def distributions(name: str = PROGRAM, extras: Iterable[str] = EXTRAS) -> dict[str, metadata.Distribution]:
    """What ``name`` needs on this system, itself left out, by normalised name; what is not installed is left out."""
    found: dict[str, metadata.Distribution] = {}
    todo = [(name, tuple(extras))]
    done: set[tuple[str, tuple[str, ...]]] = set()
    while todo:
        asked = todo.pop()
        if asked in done:
            continue
        done.add(asked)
        try:
            distribution = metadata.distribution(asked[0])
        except metadata.PackageNotFoundError:
            continue
        found[normalised(asked[0])] = distribution
        for line in distribution.requires or ():
            needed = Requirement(line)
            wanted = needed.marker is None or any(needed.marker.evaluate({"extra": each}) for each in ("", *asked[1]))
            if wanted:
                todo.append((normalised(needed.name), tuple(sorted(needed.extras))))
    del found[normalised(name)]
    return found


def normalised(name: str) -> str:
    """A distribution's name as an index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def notices(libraries: Iterable[Path] = ()) -> list[Notice]:
    """Everything, in the order of names. Raises :class:`SystemExit` where a text is missing."""
    found = [_of_distribution(name, each) for name, each in distributions().items()]
    found.append(_of_python())
    found += _of_system(libraries)
    bare = [each.name for each in found if not each.texts]
    if bare:
        raise SystemExit(f"No licence text is known for {', '.join(bare)}; put it into assets/licences and notices.py.")
    return sorted(found, key=lambda each: each.name.lower())


def _of_distribution(name: str, distribution: metadata.Distribution) -> Notice:
    facts = distribution.metadata
    # The texts stand in the .dist-info folder: by their names, or in a folder for them.
    inside = [each for each in distribution.files or () if each.parts[0].endswith(".dist-info")]
    own = [each for each in inside if NAMES.search(each.name) or "licenses" in each.parts]
    texts = [_read(Path(str(distribution.locate_file(each)))) for each in own]
    names, words = ADDED.get(name, ((), ""))
    texts += [_read(TEXTS / each) for each in names]
    licence = facts.get("License-Expression") or _classified(facts) or (facts.get("License") or "").split("\n")[0]
    return Notice(facts["Name"], distribution.version, licence or "see below", _source(facts), tuple(texts), words)


def _classified(facts: metadata.PackageMetadata) -> str:
    found = [each.split(" :: ")[-1] for each in facts.get_all("Classifier") or () if each.startswith("License :: ")]
    return ", ".join(each for each in found if each != "OSI Approved")


def _source(facts: metadata.PackageMetadata) -> str:
    urls = dict(line.split(", ", 1) for line in facts.get_all("Project-URL") or () if ", " in line)
    for wanted in ("source", "repository", "homepage", "github"):
        for label, url in urls.items():
            if wanted in label.lower():
                return url
    return facts.get("Home-page") or next(iter(urls.values()), f"https://pypi.org/project/{facts['Name']}/")


def _of_python() -> Notice:
    folders = [Path(sys.base_prefix), Path(sysconfig.get_path("stdlib")), Path(sys.base_prefix) / "Resources"]
    places = [folder / name for folder in folders for name in ("LICENSE.txt", "LICENSE")]
    places.append(Path(f"/usr/share/doc/python{sys.version_info.major}.{sys.version_info.minor}/copyright"))
    texts = [_read(path) for path in places if path.is_file()][:1]
    version = ".".join(map(str, sys.version_info[:3]))
    words = "With the libraries it is built on (OpenSSL, SQLite, zlib, libffi and others), under their own licences."
    return Notice("Python", version, "PSF-2.0", "https://www.python.org/downloads/source/", tuple(texts), words)


def _of_system(libraries: Iterable[Path]) -> Iterator[Notice]:
    """The Debian packages that ``libraries`` were taken from; nothing on other systems."""
    if shutil.which("dpkg-query") is None:
        return
    packages: dict[str, str] = {}
    for library in sorted({each.resolve() for each in libraries}):
        # The same file is known by its path before /usr was merged, too.
        for path in (library, Path("/", *library.parts[2:]) if library.parts[:2] == ("/", "usr") else library):
            found = subprocess.run(["dpkg-query", "-S", str(path)], capture_output=True, text=True, check=False)
            if found.returncode == 0:
                packages[found.stdout.split(":")[0].split(",")[0]] = ""
                break
    for package in packages:
        told = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}\t${source:Package}", package],
            capture_output=True,
            text=True,
            check=True,
        )
        version, _, source = told.stdout.partition("\t")
        text = Path("/usr/share/doc") / package / "copyright"
        texts = (_read(text),) if text.is_file() else ()
        yield Notice(package, version, "see below", f"https://sources.debian.org/src/{source}/", texts)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").strip()


def document(found: list[Notice]) -> str:
    """The list of what is carried, then every text once, with the names it belongs to."""
    lines = [
        "Third-party notices",
        "",
        "This program is under the Apache License 2.0. It carries these works of others:",
        "",
    ]
    belongs: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    for each in found:
        lines += [f"{each.name} {each.version}", f"    licence: {each.licence}", f"    source: {each.source}"]
        lines += [f"    {line}" for line in each.words.splitlines()]
        for text in each.texts:
            key = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
            texts.setdefault(key, text)
            if each.name not in belongs.setdefault(key, []):
                belongs[key].append(each.name)
    for key, text in texts.items():
        lines += ["", RULE, f"For {', '.join(belongs[key])}:", "", text]
    return "\n".join(lines) + "\n"


def write(target: Path, libraries: Iterable[Path] = ()) -> None:
    """Write the document to ``target``."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(document(notices(libraries)), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), map(Path, sys.argv[2:]))
