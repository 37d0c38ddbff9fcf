"""Dump formats: a module each, which lists the tensors of a dump. Values are read on demand."""
