"""TensorFlow Lite Micro: the kernels of microcontrollers."""
