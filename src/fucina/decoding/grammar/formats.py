"""The formats of strings as patterns of our own: never wider than the standard, and without end only where it says so.

Sources: RFC 3339 (dates and times), RFC 4122 (UUID), RFC 5321 (mail addresses), RFC 1123 (host names), RFC 4291 (IPv6),
RFC 3986 (URIs), and appendix A of RFC 3339 (durations).
"""

from __future__ import annotations

from collections.abc import Mapping

_DAY = (
    r"(?:(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-"
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    r"|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
)
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_NUMBER = r"[0-9]{1,4}"
_TIME_PART = rf"T(?:{_NUMBER}H(?:{_NUMBER}M(?:{_NUMBER}S)?)?|{_NUMBER}M(?:{_NUMBER}S)?|{_NUMBER}S)"
_DAY_PART = rf"(?:{_NUMBER}Y(?:{_NUMBER}M(?:{_NUMBER}D)?)?|{_NUMBER}M(?:{_NUMBER}D)?|{_NUMBER}D)"
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_GROUP = r"[0-9a-fA-F]{1,4}"
_IPV6 = "|".join(
    [
        rf"(?:{_GROUP}:){{7}}{_GROUP}",
        *(rf"(?:{_GROUP}:){{{n}}}(?::{_GROUP}){{1,{7 - n}}}" for n in range(1, 7)),
        rf"(?:{_GROUP}:){{1,7}}:",
        rf":(?::{_GROUP}){{1,7}}",
        "::",
    ]
)
_PATH = r"(?:[a-zA-Z0-9\-._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})"

#: Format to pattern, to be matched as a whole.
FORMATS: Mapping[str, str] = {
    "date": _DAY,
    "time": _CLOCK,
    "date-time": rf"{_DAY}T{_CLOCK}",
    "duration": rf"P(?:{_DAY_PART}(?:{_TIME_PART})?|{_TIME_PART}|{_NUMBER}W)",
    "email": rf"[a-zA-Z0-9_%+-]{{1,32}}(?:\.[a-zA-Z0-9_%+-]{{1,16}}){{0,3}}@(?:{_LABEL}\.){{1,3}}[a-zA-Z]{{2,12}}",
    "hostname": rf"(?:{_LABEL}\.){{0,5}}[a-zA-Z]{{2,12}}",
    "ipv4": rf"(?:{_BYTE}\.){{3}}{_BYTE}",
    "ipv6": _IPV6,
    "uuid": r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}",
    "uri": (
        rf"[a-zA-Z][a-zA-Z0-9+.-]{{0,15}}://(?:{_LABEL}\.){{0,5}}{_LABEL}(?::[0-9]{{1,4}})?"
        rf"(?:/{_PATH}*)*(?:\?(?:{_PATH}|[/?])*)?(?:#(?:{_PATH}|[/?])*)?"
    ),
}
#: The formats whose texts may become ever longer.
ENDLESS_FORMATS = frozenset({"uri"})
