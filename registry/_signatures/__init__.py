"""Signatures of the optimizers and schedules of each TensorFlow, as compat_tests/registry/record.py recorded them."""
