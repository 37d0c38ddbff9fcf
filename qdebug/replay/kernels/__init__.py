"""One kernel per operator: a family of operators per module, loaded by `qdebug.replay.registry`."""
