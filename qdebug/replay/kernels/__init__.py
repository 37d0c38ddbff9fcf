"""Kernels, one per operator. Each module holds a family of operators and is loaded by `qdebug.replay.registry`."""
