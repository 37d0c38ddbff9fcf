"""One node of a run, cut out so that it can be run alone."""
