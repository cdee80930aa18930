"""Recording of what a model computes: the part of ``diagnose`` that needs TensorFlow."""
