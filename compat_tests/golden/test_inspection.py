"""``scalekeeper.inspect`` on checkpoints and SavedModels, which TensorFlow's own reader opens."""

import pytest

from scalekeeper_test_support.golden import inspection, matrix


@pytest.mark.parametrize("producer", matrix.producers(), ids=lambda producer: producer.name)
def test_what_every_version_wrote_is_shown_as_it_is(producer):
    """Iterations, state and slots, and what is lacking; of SavedModels the optimizer and its policy, too."""
    surprises, count = inspection.surprises(producer, ("checkpoint", "saved_model"))
    assert surprises == []
    assert count >= len(matrix.cases(producer))
