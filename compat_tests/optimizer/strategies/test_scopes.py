"""An optimizer is used under the strategy that it was made for, and a strategy may have its older name."""

import pytest

from scalekeeper_test_support import installed_keras

pytestmark = pytest.mark.slow

ELSEWHERE = ["in_another", "inner_in_another", "policy_in_another"]


@pytest.fixture(scope="module")
def found(run_scenario):
    return run_scenario("scopes")


def check_refused(result, where):
    """The error says where it was made and what to do, and neither weights nor scale have changed."""
    assert result["error"]["type"] == "StrategyError"
    for expected in ("apply_gradients is called under", where, "inside `with strategy.scope()`"):
        assert expected in result["error"]["message"]
    assert all(value == [1.0, 2.0] for value in result["values"])
    assert result["state"] == result["before"]


@pytest.mark.parametrize("made", ELSEWHERE)
def test_what_another_strategy_made_is_refused(found, made):
    """An optimizer, an inner optimizer or a policy of another strategy is a StrategyError, traced and eager."""
    for result in found[made]:
        check_refused(result, "in the scope of another MirroredStrategy")


def test_what_a_strategy_made_is_refused_without_it(found):
    """The same where no strategy trains."""
    for result in found["without a strategy"]:
        check_refused(result, "called under no strategy")


@pytest.mark.parametrize("made", ["outside", "built_outside"])
def test_an_optimizer_made_outside_trains_as_one_made_inside_or_is_refused(found, made):
    """Keras 2 writes its variables once for all replicas; Keras 3 for each replica, so that they would drift apart.

    A new optimizer of Keras 2 that was used before knows no variables but those, and says so by itself.
    """
    for result, inside in zip(found[made], found["inside"]):
        if installed_keras.IS_KERAS_3:
            check_refused(result, "outside of its scope")
        elif installed_keras.HAS_NEW_OPTIMIZERS and made == "built_outside":
            assert result["error"]["type"] == "KeyError"
            assert "The optimizer cannot recognize variable" in result["error"]["message"]
            assert result["values"] == [[1.0, 2.0], [1.0, 2.0]]
        else:
            assert (result["error"], result["values"]) == (None, inside["values"])
            assert result["state"]["current_loss_scale"] == 512.0


def test_the_training_that_all_are_compared_with(found):
    """Made inside, the optimizer skips the second step, and both replicas are the same."""
    for result in found["inside"]:
        assert result["error"] is None
        assert result["state"] == {"current_loss_scale": 512.0, "good_steps": 1}
        assert result["values"][0] == result["values"][1] != [1.0, 2.0]


def test_a_scope_within_another_is_tensorflows_error(found):
    """It comes before any optimizer is made."""
    assert found["nested"]["type"] == "RuntimeError"


@pytest.mark.parametrize("name", ["MirroredStrategy", "OneDeviceStrategy", "MultiWorkerMirroredStrategy"])
def test_a_strategy_by_its_name_in_tensorflow_1(found, name):
    """Its class is another, and training under it is the same to the bit."""
    newer, older = found["of TensorFlow 1"][name]
    assert (older.pop("class"), newer.pop("class"))[0].endswith("V1")
    assert older == newer
    assert older["skips"][-1]["skipped"] > 0
