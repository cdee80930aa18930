"""What each TensorFlow version writes to disk: reading it, writing it, converting it."""
