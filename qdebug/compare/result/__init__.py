"""What a comparison found: one entry per tensor, limits, the verdict, and how results are stored."""
