"""Accuracy of runs against labels, and a history of results."""
