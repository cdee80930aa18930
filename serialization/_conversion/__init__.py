"""Convert files between TensorFlow versions."""
