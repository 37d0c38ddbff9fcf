"""Where wrong elements lie and what they hold: the pattern of what no arithmetic reproduces."""
