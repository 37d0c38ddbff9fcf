"""Sizes in bytes, as text."""

from __future__ import annotations

__all__ = ["byte_size"]


def byte_size(size: int) -> str:
    """Return a size in decimal units with three digits, as is usual for disks and networks.

    Args:
        size: Bytes.

    Examples:
        >>> byte_size(64), byte_size(260_096)
        ('64 B', '260 kB')
    """
    if size < 1000:
        return f"{size} B"
    value, units = size / 1000, ["kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.0f} {units[0]}" if value >= 99.95 else f"{value:#.3g} {units[0]}"
