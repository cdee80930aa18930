"""LossScaleOptimizer: the in-graph core, and one thin file per Keras generation. The only room that needs TensorFlow."""
