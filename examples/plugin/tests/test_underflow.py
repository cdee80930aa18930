"""The policy: the contract of every policy, and its own rule in numbers."""

import numpy as np
from scalekeeper_underflow import UnderflowLossScale

from scalekeeper.testing import loss_scale_checks


@loss_scale_checks(UnderflowLossScale, {"name": "underflow", "zero_share": 0.1, "patience": 2})
def test_contract(check):
    """One check at a time: scalekeeper's docs/testing.md says what each of them holds a policy to."""
    check()


def test_it_grows_while_gradients_underflow_and_no_longer():
    """Two steps with too many zeros double the scale; steps with few leave it; an overflow halves it."""
    policy = UnderflowLossScale(initial_loss_scale=8, zero_share=0.5, patience=2)
    scales = []
    for gradient in ([0, 0, 1], [0, 0, 1], [0, 0, 1], [1, 2, 3], [0, 0, 1], [np.inf, 0, 0]):
        policy.update([np.float32(gradient)])
        scales.append(float(policy()))
    assert scales == [8, 16, 16, 16, 16, 8]
