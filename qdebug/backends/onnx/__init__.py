"""ONNX model files: read, written, changed, and computed by the reference implementation."""
