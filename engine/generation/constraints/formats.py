"""The formats of strings and numbers that are enforced, each written as plain JSON Schema.

A format of strings is a regular expression and a format of numbers is a pair of bounds, so that what constrains an
answer and what checks it afterwards read the same rule. Patterns use no look-around: the matchers run in linear time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DAYS = (
    "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8])"
)
_LEAP_YEAR = "[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00"
_DATE = f"(?:[0-9]{{4}}-(?:{_DAYS})|(?:{_LEAP_YEAR})-02-29)"
# Without leap seconds, which most readers of the answer refuse.
_HOURS = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = f"{_HOURS}:[0-5][0-9](?:\\.[0-9]{{1,9}})?(?:Z|[+-]{_HOURS})"
_CLOCK = "(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_CALENDAR = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = f"{_BYTE}(?:\\.{_BYTE}){{3}}"
_H16 = "[0-9A-Fa-f]{1,4}"
_LS32 = f"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6 = "|".join(
    [f"(?:{_H16}:){{6}}{_LS32}", f"::(?:{_H16}:){{5}}{_LS32}"]
    + [f"(?:(?:{_H16}:){{0,{before}}}{_H16})?::(?:{_H16}:){{{4 - before}}}{_LS32}" for before in range(5)]
    + [f"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}", f"(?:(?:{_H16}:){{0,6}}{_H16})?::"]
)
_PCHAR = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_HOST = f"(?:\\[(?:{_IPV6})\\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{{2}})*)"
_USER = "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?"
_PATH = f"(?://{_USER}{_HOST}(?::[0-9]*)?(?:/{_PCHAR}*)*|/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?|(?:{_PCHAR}+(?:/{_PCHAR}*)*)?)"
_HEX = "[0-9A-Fa-f]"

PATTERNS: Mapping[str, str] = {
    "date": _DATE,  # RFC 3339, full-date
    "time": _TIME,  # RFC 3339, full-time
    "date-time": f"{_DATE}T{_TIME}",  # RFC 3339
    "duration": f"P(?:{_CALENDAR}(?:T{_CLOCK})?|T{_CLOCK}|[0-9]+W)",  # RFC 3339, appendix A
    "email": f"{_ATOM}(?:\\.{_ATOM})*@{_LABEL}(?:\\.{_LABEL})*",  # RFC 5321 without quotes and address literals
    "hostname": f"{_LABEL}(?:\\.{_LABEL})*",  # RFC 1123
    "ipv4": _IPV4,  # RFC 2673, section 3.2
    "ipv6": f"(?:{_IPV6})",  # RFC 3986, section 3.2.2
    "uri": f"[A-Za-z][A-Za-z0-9+.-]*:{_PATH}(?:\\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?",  # RFC 3986
    "uuid": f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}",  # RFC 4122
    **{f"uuid{n}": f"{_HEX}{{8}}-{_HEX}{{4}}-{n}{_HEX}{{3}}-[89ABab]{_HEX}{{3}}-{_HEX}{{12}}" for n in range(1, 9)},
}
"""Regular expressions of whole strings."""

BOUNDS: Mapping[str, tuple[int, int]] = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}
"""Least and greatest number of each format of whole numbers."""

HINTS = frozenset({"password", "binary", "path", "file-path", "directory-path", "float", "double"})
"""Formats that tell a program how to show or keep a value, and rule out none."""

KNOWN = tuple(sorted({*PATTERNS, *BOUNDS, *HINTS}))


def as_schema(name: str) -> dict[str, Any]:
    """Keywords that say what format ``name``, one of :data:`KNOWN`, says."""
    if name in PATTERNS:
        return {"pattern": f"^(?:{PATTERNS[name]})$"}
    if name in BOUNDS:
        least, greatest = BOUNDS[name]
        return {"minimum": least, "maximum": greatest}
    return {}
