"""ONNX model files: read, write, edit, and compute with the reference implementation."""
