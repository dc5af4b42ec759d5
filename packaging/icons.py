"""Draws the program's icon in the sizes and formats installers want: ``python packaging/icons.py FOLDER``."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, Qt
from PySide6.QtGui import QGuiApplication, QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

SOURCE = Path(__file__).resolve().parents[1] / "assets" / "icon.svg"
LINUX = (16, 24, 32, 48, 64, 128, 256, 512)
ICO = (16, 24, 32, 48, 64, 128, 256)
ICNS = {16: b"icp4", 32: b"icp5", 64: b"icp6", 128: b"ic07", 256: b"ic08", 512: b"ic09", 1024: b"ic10"}


def draw(size: int) -> bytes:
    """The icon as a PNG of ``size`` × ``size`` pixels."""
    image = QImage(size, size, QImage.Format.Format_ARGB32)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    QSvgRenderer(str(SOURCE)).render(painter)
    painter.end()
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")
    return bytes(data.data())


def ico(pictures: dict[int, bytes]) -> bytes:
    """A Windows icon of PNG pictures: a directory of 16 bytes each, then the pictures."""
    head = struct.pack("<HHH", 0, 1, len(pictures))
    at = len(head) + 16 * len(pictures)
    for size, png in pictures.items():
        head += struct.pack("<BBBBHHII", size % 256, size % 256, 0, 0, 1, 32, len(png), at)
        at += len(png)
    return head + b"".join(pictures.values())


def icns(pictures: dict[int, bytes]) -> bytes:
    """A macOS icon: a magic number and the whole length, then each picture under its own four letters."""
    body = b"".join(ICNS[size] + struct.pack(">I", len(png) + 8) + png for size, png in pictures.items())
    return b"icns" + struct.pack(">I", len(body) + 8) + body


def main() -> int:
    """Write everything into the folder named on the command line."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    application = QGuiApplication([])
    for size in LINUX:
        (out / f"millm-desktop-{size}.png").write_bytes(draw(size))
    (out / "millm.ico").write_bytes(ico({size: draw(size) for size in ICO}))
    (out / "millm.icns").write_bytes(icns({size: draw(size) for size in ICNS}))
    application.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
