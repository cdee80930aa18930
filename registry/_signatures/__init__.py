"""What the optimizers and schedules of each TensorFlow accept, recorded on the real ones (compat_tests/signatures)."""
