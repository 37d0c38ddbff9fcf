"""The search for the arithmetic of a quantized node: candidates, presets, deciding elements, remaining errors.

It computes with `qdebug.replay` and reads recordings; comparisons, probes and the interpreter use it.
"""
