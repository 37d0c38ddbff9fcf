"""What can be wrong with a node: small checks, in one ordered tuple."""
