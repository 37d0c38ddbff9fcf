"""Arrays in, numbers out: metrics, saturation, quantization and rounding. Total, pure, never mutating."""
