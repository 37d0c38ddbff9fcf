"""The search for the arithmetic of a quantized node: candidates, presets, deciding elements, residual errors.

It builds on `qdebug.replay` and reads recordings. Comparisons, probes and the interpreter use it.
"""
