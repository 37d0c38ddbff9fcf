"""Writes recordings: payloads, tables, sinks; packs finished ones and rebuilds those that were cut off."""
