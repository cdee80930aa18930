"""LossScaleOptimizer: the in-graph core, one thin file per Keras generation. The one room that needs TensorFlow."""
