"""Signatures of the optimizers and schedules of each TensorFlow, as recorded by compat_tests/signatures."""
