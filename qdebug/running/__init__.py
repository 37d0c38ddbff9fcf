"""Run models: make their inputs, record them, measure whether recording changed the outputs; also worker processes."""
