"""Pure functions from arrays to numbers: metrics, clipping, quantization and rounding.

They never modify their inputs.
"""
