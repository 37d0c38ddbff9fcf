"""LiteRT (TensorFlow Lite), and its model files."""
