"""One adapter per Keras generation, and what they share."""
