"""Matches each tensor of the backend run with its counterpart in the reference run, by names, structure and layouts."""
