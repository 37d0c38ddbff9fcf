"""Find the version, pass or option of a runtime that changed the results of a network."""
