"""Find which version, pass or option of a runtime changed what a network computes."""
