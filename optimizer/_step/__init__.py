"""Scale the loss, unscale the gradients, decide and apply: one training step in the graph."""
