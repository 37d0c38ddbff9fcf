"""The bytes of a recording file: its specification, its facts and its payloads."""
