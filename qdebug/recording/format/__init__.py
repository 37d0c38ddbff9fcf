"""What a recording file holds, to the byte: its specification, its facts and its payloads."""
