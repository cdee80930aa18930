"""The decision sees the gradients that the inner optimizer gets: those of two replicas, aggregated."""

import pytest
import tensorflow as tf

from scalekeeper_test_support import installed_keras

# Up to 3.4, optimizers of Keras 3 do not sum gradients by a method that can be called before the decision.
pytestmark = pytest.mark.skipif(
    installed_keras.IS_KERAS_3
    and "_all_reduce_sum_gradients" not in tf.keras.optimizers.SGD._backend_update_step.__code__.co_names,
    reason="this Keras 3 does not sum gradients before it applies them",
)


@pytest.fixture
def found(mirrored_results):
    return mirrored_results


def steps(*expected):
    """The results of steps: the value of all three weights, equal on both replicas, and the loss scale."""
    return [{"values": [[value] * 3] * 2, "scale": scale} for value, scale in expected]


@pytest.mark.parametrize("kind", sorted(installed_keras.OPTIMIZERS))
def test_an_infinite_sum_of_finite_gradients_is_skipped(found, kind):
    """Both replicas skip it and the loss scale falls; large gradients that cancel each other are applied."""
    expected = steps((-1.5, 2.0), (-1.5, 1.0), (-1.5, 1.0), (-2.5, 1.0), (-2.5, 1.0))
    assert found["sums"][f"ours {kind}"] == expected
    theirs = installed_keras.upstream(installed_keras.OPTIMIZERS[kind].SGD(0.5))
    if installed_keras.aggregates_first(theirs):
        assert found["sums"][f"tensorflow {kind}"] == expected


def test_an_infinite_sum_of_one_row_is_skipped(found):
    """Sparse gradients of both replicas that overflow in one row are skipped."""
    weights = [[-0.5, -3.0, -0.5], [-0.5, -3.0, -0.5], [-1.0, -6.0, -1.0]]
    expected = [{"values": [each] * 2, "scale": scale} for each, scale in zip(weights, (2.0, 1.0, 1.0))]
    assert found["sparse_sums"] == expected


@pytest.mark.parametrize("name", ["clipvalue", "clipnorm"])
def test_clipping_does_not_hide_an_infinity(found, name):
    """An infinity on either replica skips, and finite gradients are clipped as by the bare optimizer, to the bit."""
    if found["clipped"] is None:
        pytest.skip("these versions refuse to clip under a strategy")
    clipped, bare = found["clipped"][name], found["clipped"]["bare " + name]
    assert [clipped[index]["values"] for index in (0, 1, 4)] == [each["values"] for each in bare]
    assert [each["values"] for each in clipped[2:4]] == [clipped[1]["values"]] * 2
    assert [each["scale"] for each in clipped] == [2.0, 2.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("kind", sorted(installed_keras.OPTIMIZERS))
def test_an_aggregation_that_makes_a_nan_is_skipped(found, kind):
    """An inner optimizer that aggregates in its own manner is asked before the decision, once."""
    optimizer = installed_keras.OPTIMIZERS[kind].SGD
    names = ("_all_reduce_sum_gradients", "aggregate_gradients", "_aggregate_gradients")
    if not any(hasattr(optimizer, name) for name in names):
        pytest.skip("up to 2.1, optimizers have no method for it")
    assert found["own_aggregation"][kind] == steps((-1.0, 2.0), (-1.0, 1.0), (-1.5, 1.0))


@pytest.mark.parametrize("kind", sorted(installed_keras.OPTIMIZERS))
def test_what_apply_gradients_does_before_it_aggregates_is_kept(found, kind):
    """An inner optimizer that clips each replica's gradients in ``apply_gradients`` does so with a loss scale, too."""
    bare = [each["values"] for each in found["own_apply"][f"bare {kind}"]]
    assert (
        [each["values"] for each in found["own_apply"][f"ours {kind}"]] == bare == [[[x] * 3] * 2 for x in (-1.5, -2.0)]
    )


@pytest.mark.skipif(
    not hasattr(tf.keras.optimizers.SGD(0.5), "gradient_aggregator"), reason="only OptimizerV2 has it, from 2.4 on"
)
def test_replicas_agree_if_their_gradients_are_not_aggregated(found):
    """With an aggregator that does nothing, a non-finite gradient on one replica alone makes both skip."""
    assert found["not_aggregated"] == steps((-0.5, 2.0), (-0.5, 1.0), (-0.5, 1.0), (-1.5, 1.0))


def test_gradients_are_exchanged_once_and_outside_of_the_branch(found):
    """The step exchanges the gradients as the bare optimizer does, and one vector with a number for each replica."""
    for name in [name[len("bare ") :] for name in found["exchanges"] if name.startswith("bare ")]:
        ours, bare = found["exchanges"]["ours " + name], found["exchanges"]["bare " + name]
        assert ours == {"sizes": [*bare["sizes"], 2], "inside": []}
        assert bare["inside"] == []
        assert set(bare["sizes"]) == {77}
