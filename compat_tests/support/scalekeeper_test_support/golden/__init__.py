"""The golden files: which there are, how they were trained, and what each TensorFlow is expected to read of them."""
