"""Where a float kernel rounds: placements of roundings inside a node, and the search for the recorded one."""
