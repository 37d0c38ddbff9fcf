"""Runs of models: what feeds them, what records them, whether that changed them, and what else many rooms need."""
