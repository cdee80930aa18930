"""State that is saved under MirroredStrategy is restored on every replica."""

import pytest


@pytest.fixture(scope="module")
def found(run_scenario):
    return run_scenario("saved")


@pytest.fixture
def states(found, inner_name):
    return found[inner_name]


def test_what_is_saved_is_trained(states):
    """The bad batch halved the scale, one good one came after it, and both replicas agree."""
    saved = states["saved"]
    assert saved["current_loss_scale"] == [512.0, 512.0]
    assert saved["good_steps"] == [1, 1]
    assert all(first == second for first, second in saved.values())


@pytest.mark.parametrize("way", ["restored from h5", "restored from checkpoint", "loaded"])
def test_every_variable_comes_back_on_every_replica(states, way):
    """Weights, slots, scale, counter and iterations are equal on both replicas to what was saved."""
    assert states[way] == states["saved"]


def test_a_state_alone_comes_back_on_every_replica(states):
    """It holds all but the weights of the model."""
    kept = {name for name in states["saved"] if not name.startswith("weight")}
    assert {name: states["restored from npz"][name] for name in kept} == {name: states["saved"][name] for name in kept}


@pytest.mark.parametrize("kind", ["h5", "checkpoint"])
def test_training_goes_on_as_if_uninterrupted(states, kind):
    """Three more batches leave the bits that they leave in the process that never stopped."""
    assert states[f"gone on from {kind}"] == states["gone on"]
