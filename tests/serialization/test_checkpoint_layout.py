"""The owners of the slots of a checkpoint; the rest of reading one needs TensorFlow."""

from scalekeeper.serialization.formats._checkpoint_layout import slots_by_name, slots_of_trained


def test_new_optimizers_of_keras_2_name_the_slot_and_the_owner():
    """Under any scope; the words tell the class if nobody else does."""
    names = {4: "cond_1/RMSprop/velocity/d1/kernel", 5: "RMSprop/momentum/d1/kernel", 6: "velocity/d1/bias"}
    expected = {4: ("d1/kernel", "rms"), 5: ("d1/kernel", "momentum"), 6: ("d1/bias", "rms")}
    assert dict(slots_by_name(names, None, ["d1/kernel", "d1/bias"])) == expected
    assert dict(slots_by_name(names, "RMSprop", [])) == expected  # an optimizer alone


def test_what_names_no_owner_is_no_slot():
    """It stays without one."""
    assert dict(slots_by_name({4: "wobble", 5: "m/other"}, "Adam", ["d1/kernel"])) == {}


def test_keras_3_has_slots_in_the_order_of_the_variables():
    """The scope of each has another number, and the path of the variable is not in the checkpoint."""
    names = ["adam/t_d1_kernel_momentum", "adam_1/t_d1_kernel_velocity", "adam_2/t_a_momentum", "adam_3/t_a_velocity"]
    found = slots_of_trained(list(enumerate(names, 10)), 2, None)
    assert found == {10: (0, "m"), 11: (0, "v"), 12: (1, "m"), 13: (1, "v")}


def test_a_slot_that_only_some_have_follows_one_that_all_have():
    """By the path that both have in their names."""
    names = ["a_momentum", "b_momentum", "b_velocity"]
    assert slots_of_trained(list(enumerate(names)), 2, "Muon") == {
        0: (0, "momentum"),
        1: (1, "momentum"),
        2: (1, "velocity"),
    }


def test_nothing_is_guessed_where_no_slot_is_whole():
    """Two slots of three variables could be anyone's."""
    assert slots_of_trained([(0, "a_momentum"), (1, "b_momentum")], 3, "SGD") == {}
