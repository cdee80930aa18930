"""The training state of an optimizer: transfer, checkpoints, pickling, counters, telemetry."""
