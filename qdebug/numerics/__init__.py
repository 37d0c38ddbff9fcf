"""Arrays in, numbers out: metrics, clipping, quantization and rounding. Total, pure, never mutating."""
