"""Accuracy of recorded runs against labels, and its history."""
