"""One profile per Keras generation."""
