"""Drawings that were made for white paper, in the colours of the window. Pure functions on the text of an SVG."""

from __future__ import annotations

import colorsys
import re

from ui.kit.colours import Colours, contrast

GREY_BELOW = 0.35
"""Saturation under which a colour is a shade between ink and paper rather than one that tells things apart."""
LEAST_CONTRAST = 3.0
"""Of a line to what is behind it (WCAG 2.2 §1.4.11), unless it was drawn fainter than that on its paper."""
PAPER = "#ffffff"

# Not what follows a bracket: url(#name) is no colour.
_COLOUR = re.compile(r"(?<!\()#(?:[0-9a-fA-F]{6}|[0-9a-fA-F]{3})\b")


def dressed(svg: str, colours: Colours) -> str:
    """``svg`` with its paper in the window's ground; in a dark window its ink is light and its lines can be told."""
    return _COLOUR.sub(lambda found: _dressed(_six(found.group()), colours), svg)


def _six(colour: str) -> str:
    """``#rgb`` written out."""
    digits = colour[1:].lower()
    return "#" + (digits if len(digits) == 6 else "".join(digit * 2 for digit in digits))


def _dressed(colour: str, colours: Colours) -> str:
    if colour == PAPER:
        return colours.ground
    if not colours.dark:
        return colour
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    if saturation < GREY_BELOW:
        lightness = 1 - lightness
    least = min(LEAST_CONTRAST, contrast(colour, PAPER))
    while contrast(_hex(hue, lightness, saturation), colours.ground) < least and lightness < 1:
        lightness = min(1.0, lightness + 0.02)
    return _hex(hue, lightness, saturation)


def _hex(hue: float, lightness: float, saturation: float) -> str:
    return "#" + "".join(f"{round(each * 255):02x}" for each in colorsys.hls_to_rgb(hue, lightness, saturation))
