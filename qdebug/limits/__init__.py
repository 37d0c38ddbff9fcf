"""Files that people write: limits, acknowledgements, notes and pairs of tensors."""
