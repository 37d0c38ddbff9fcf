"""Rows, cells and sentences shared by reports and the terminal UI: the only place that rounds."""
