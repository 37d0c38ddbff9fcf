"""Run and record models: inputs, states, and a check whether recording changed the outputs. Also worker processes."""
