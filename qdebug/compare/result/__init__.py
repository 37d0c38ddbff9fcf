"""What a comparison found: one entry a tensor, limits, the verdict, and how they are kept."""
