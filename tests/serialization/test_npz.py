"""A training state as a mapping and as an .npz file: all of it, in one version, and nothing that runs."""

import json

import numpy as np
import pytest

from scalekeeper import InvalidSpecError, UnreadableFileError, read_state, save_state
from scalekeeper.serialization.training_state import TrainingState, Value, Writer, state_dict_of, state_of_dict


def contents():
    return TrainingState(
        Writer("npz", keras="2.15.0", tensorflow="2.15.1", scalekeeper="0.1.0"),
        optimizer_config={"class_name": "Nadam", "config": {"learning_rate": 0.5}},
        owners={"d1/kernel": (2, 1), "d1/bias": (1,)},
        slots={
            "d1/kernel": {"m": Value.of(np.float32([[1.0], [2.0]])), "v": Value.of(np.float32([[3.0], [4.0]]))},
            "d1/bias": {"m": Value.of(np.float32([5.0])), "v": Value.of(np.float32([6.0]))},
        },
        scalars={"momentum_cache": Value.of(np.float32(0.25))},
        iterations=7,
        learning_rate=0.125,
        loss_scale={"class_name": "DynamicLossScale", "config": {"increment_period": 3}},
        loss_scale_state={"current_loss_scale": 512.0, "good_steps": 2},
        skipped_steps="hold",
        skips={"total": 3, "in_a_row": 2, "last": 7, "overflows": {"d1/kernel": 3}},
    )


class Optimizer:
    """The methods of an optimizer that save_state uses."""

    def state_dict(self):
        return state_dict_of(contents())


def plain(value):
    """The same with lists for arrays, to compare."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def test_a_state_is_plain_but_for_its_arrays():
    """Without its slots it is JSON; these are NumPy arrays by variable and name."""
    state = state_dict_of(contents())
    slots = state.pop("slots")
    assert json.loads(json.dumps(state)) == state
    assert (state["version"], state["iterations"], state["skipped_steps"]) == (1, 7, "hold")
    assert plain(slots)["d1/kernel"] == {"m": [[1.0], [2.0]], "v": [[3.0], [4.0]]}
    assert {array.dtype.name for each in slots.values() for array in each.values()} == {"float32"}


def test_a_state_comes_back_from_a_mapping():
    """Reading restores the written state."""
    state = state_dict_of(contents())
    assert plain(state_dict_of(state_of_dict(state))) == plain(state)


@pytest.mark.parametrize("name", ["state.npz", "state"])
def test_a_state_comes_back_from_a_file(tmp_path, name):
    """Under the name that was given, and no other."""
    save_state(Optimizer(), tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert plain(read_state(tmp_path / name)) == plain(state_dict_of(contents()))


@pytest.mark.parametrize(
    ("name", "value", "path", "kind"),
    [
        ("version", 2, ("version",), "version"),
        ("iterations", "7", ("iterations",), "type"),
        ("iterations", True, ("iterations",), "type"),
        ("skipped_steps", "native", ("skipped_steps",), "value"),
        ("loss_scale", {"class_name": "A", "config": {}}, ("loss_scale", "state"), "type"),
        ("written_by", {"somebody": "1"}, ("written_by",), "type"),
        ("owners", {"d1/kernel": 3}, ("owners",), "type"),
    ],
)
def test_a_wrong_state_is_refused(name, value, path, kind):
    """The error has the path and kind of the one problem."""
    state = {**state_dict_of(contents()), name: value}
    with pytest.raises(InvalidSpecError) as caught:
        state_of_dict(state)
    assert [(problem.path, problem.kind) for problem in caught.value.problems] == [(path, kind)]


def test_what_is_no_mapping_is_refused():
    """A list of weights, for instance."""
    with pytest.raises(InvalidSpecError) as caught:
        state_of_dict([1, 2])
    assert [problem.path for problem in caught.value.problems] == [()]


def test_a_file_without_a_record_is_refused(tmp_path):
    """As other programs write .npz files."""
    np.savez(str(tmp_path / "other.npz"), weights=np.zeros(3))
    with pytest.raises(UnreadableFileError, match="other.npz"):
        read_state(tmp_path / "other.npz")


def test_a_file_with_a_pickle_is_refused_and_nothing_runs(tmp_path):
    """An array of objects is a pickle, which could run anything."""

    class Runs:
        def __reduce__(self):
            return open, (str(tmp_path / "ran"), "w")

    path = tmp_path / "pickled.npz"
    np.savez(str(path), record=np.array(Runs(), dtype=object))
    with pytest.raises(UnreadableFileError, match="pickled.npz"):
        read_state(path)
    assert not (tmp_path / "ran").exists()


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    """At any length."""
    save_state(Optimizer(), tmp_path / "state.npz")
    whole = (tmp_path / "state.npz").read_bytes()
    for length in range(0, len(whole), 97):
        (tmp_path / "cut.npz").write_bytes(whole[:length])
        with pytest.raises(UnreadableFileError):
            read_state(tmp_path / "cut.npz")


@pytest.mark.parametrize(
    ("skips", "path"),
    [
        (5, ("skips",)),
        ({"total": -1}, ("skips", "total")),
        ({"last": 1.5}, ("skips", "last")),
        ({"overflows": 3}, ("skips", "overflows")),
        ({"total": True, "overflows": {"total": 1}}, ("skips", "total")),
        ({"overflows": {"d1/kernel": "many"}}, ("skips", "overflows", "d1/kernel")),
    ],
    ids=str,
)
def test_counters_of_skipped_steps_that_are_none_are_refused(skips, path):
    """The error names the counter, also where a variable has the same name as one."""
    state = {**state_dict_of(contents()), "skips": skips}
    with pytest.raises(InvalidSpecError) as caught:
        state_of_dict(state)
    assert [problem.path for problem in caught.value.problems] == [path]
