"""The demonstration: train, save in every format, go on in new processes, and compare to the bit."""

from ... import registry as registry  # whole, before a part of it: docs/architecture.md, "Decisions worth knowing"
