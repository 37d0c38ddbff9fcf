"""Dump formats, one per module. Each module lists the tensors of a dump, whose values are read on demand."""
