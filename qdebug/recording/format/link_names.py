"""Convert tensor names to HDF5 link names and back. Any tensor name becomes a single path component.

UTF-8 bytes of the name that have a special meaning in HDF5, a shell or a terminal are written as `%` and two
hexadecimal digits, as in a URL. `urllib.parse.unquote` turns a link back into the name.
"""

from __future__ import annotations

import re

import xxhash

__all__ = ["MAX_LINK", "link_of", "link_of_bytes", "name_of"]

MAX_LINK = 1024
"""Maximum bytes of a link that holds the whole name. A longer one is cut and ends with the hash of the name."""
_KEPT_BYTES = MAX_LINK // 2
_EMPTY, _CUT = b"%", b"%~"
"""The link of the tensor without a name, and the prefix of the hash in a cut link: escapes never look like either."""
_SPECIAL_LINKS = {b"": _EMPTY, b".": b"%2E", b"..": b"%2E%2E"}
"""Links of names that cannot be links themselves."""
_CONTROL = re.compile(
    rb"[\x00-\x1f\x7f]"  # NUL terminates a string, other characters control a terminal
    rb"|\xc2[\x80-\x9f]"  # further control characters
    rb"|\xed[\xa0-\xbf][\x80-\xbf]"  # lone surrogates, which are not valid UTF-8
)
_ESCAPE = re.compile(rb"%([0-9A-F]{2})")


def link_of(name: str) -> bytes:
    """Return the link for a tensor name. Different names have different links."""
    return link_of_bytes(name.encode("utf-8", "surrogatepass"))


def link_of_bytes(name: bytes) -> bytes:
    """Return the link for a tensor name given in UTF-8 (lone surrogates encoded as such)."""
    link = _CONTROL.sub(_escape_match, name.replace(b"%", b"%25").replace(b"/", b"%2F"))
    link = _SPECIAL_LINKS.get(link, link)
    if len(link) <= MAX_LINK:
        return link
    whole_characters = link[:_KEPT_BYTES].decode("utf-8", "ignore").encode()
    return whole_characters + _CUT + xxhash.xxh3_128_hexdigest(name).encode()


def name_of(link: bytes) -> str | None:
    """Return the name that a link stands for; None if the link was cut or does not stand for a name."""
    if _CUT in link:
        return None
    name = b"" if link == _EMPTY else _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), link)
    try:
        text = name.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return text if link_of_bytes(name) == link else None


def _escape_match(found: re.Match[bytes]) -> bytes:
    return b"".join(b"%%%02X" % byte for byte in found[0])
