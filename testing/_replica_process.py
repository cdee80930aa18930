"""The process of the check ``replicas_agree``: two logical CPUs, and a MirroredStrategy over both.

It reads the policies from stdin as JSON, and prints the results as the last line.
"""

from typing import Any, Dict, List, Mapping, Sequence, Tuple

import importlib
import importlib.util
import json
import os
import sys
import warnings

import numpy as np

from ..lossscales.contract import has_pure_step
from ..registry.errors import ForgottenScalingWarning
from ._graph_checks import held, traced_update
from ._steps import exact, step_results

# of each replica: bad on one alone, on the other alone, in every way, and on both; good ones between
_PAIRS = [
    *[(1.0, 2.0), (np.nan, 1.0), (1.0, np.nan), (2.0, 1.0), (np.inf, 1.0), (1.0, -np.inf), (1.0, 0.5)],
    *[(1.0, np.inf), (0.0, 1.0), (np.nan, np.inf), (1.0, 1.0), (3.0, 1.0), (4.0, np.nan), (1.0, 0.0)],
]
_MOVED, _LEFT = ["moved"], ["as it was"]
_REMEDY = (
    "Decide by the report that the pure step is given, on which all replicas have agreed; a custom update gets the "
    "gradients of all replicas, and has to look at each"
)


def main() -> None:
    question = json.load(sys.stdin)
    sys.path[:] = question["path"]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # TensorFlow may print to stdout
    import tensorflow as tf

    _poll_often(tf.train.Coordinator)
    (cpu,) = tf.config.experimental.list_physical_devices("CPU")
    logical = [tf.config.experimental.VirtualDeviceConfiguration() for _ in range(2)]
    tf.config.experimental.set_virtual_device_configuration(cpu, logical)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    answers.write(json.dumps([_tried(strategy, address) for address in question["policies"]]) + "\n")
    answers.flush()


def _poll_often(coordinator: Any) -> None:
    """Make TensorFlow poll the threads of its replicas more often than once a second."""
    patient = coordinator.wait_for_stop
    coordinator.wait_for_stop = lambda self, timeout=None: patient(self, timeout and min(timeout, 0.002))


def _tried(strategy: Any, address: Mapping[str, Any]) -> Dict[str, str]:
    """Return the failure of a policy, or an empty text."""
    try:
        cls = _found(address)
        _require_agreement(strategy, lambda: cls.from_config(dict(address["config"])))
    except _DifferError as error:
        return {"failure": str(error), "remedy": _REMEDY}
    except Exception as error:
        text = " ".join(str(error).split())[:400]
        return {"failure": f"under two replicas, {type(error).__name__}: {text}", "remedy": _REMEDY}
    return {"failure": "", "remedy": ""}


class _DifferError(Exception):
    """Raised when replicas differ."""


def _found(address: Mapping[str, Any]) -> Any:
    """Import the class from the same file as in the other process."""
    name, path = address["module"], address["file"]
    try:
        module = None if name == "__main__" else importlib.import_module(name)
    except ImportError:
        module = None
    if module is None or not _is_same(getattr(module, "__file__", None), path):
        spec: Any = importlib.util.spec_from_file_location("checked_" + name.strip("_").replace(".", "_"), path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    found: Any = module
    for part in address["qualname"].split("."):
        found = getattr(found, part)
    return found


def _is_same(one: Any, other: str) -> bool:
    return one is not None and os.path.realpath(one) == os.path.realpath(other)


def _require_agreement(strategy: Any, make: Any) -> None:
    expected = _alone(make())
    for number, (pair, one, other) in enumerate(zip(_PAIRS, expected, _together(strategy, make))):
        if one != other:
            raise _DifferError(
                f"at step {number}, with the gradients {pair[0]:g} and {pair[1]:g} on two replicas, there is "
                f"{_text(other)}; one replica with both gradients comes to {_text(one)}"
            )


Found = Tuple[List[str], List[str]]


def _text(found: Found) -> str:
    states, weights = (sorted(set(each)) for each in found)
    return f"state {' and '.join(states)}, variable {' and '.join(weights)}"


def _alone(policy: Any) -> List[Found]:
    """Return state and variable after each step of one replica that has both gradients."""
    import tensorflow as tf

    step, found = traced_update(held(policy)), []
    for pair in _PAIRS:
        (result,) = step_results(policy, [tf.constant(pair, tf.float32)], step)
        found.append(([str(result.state)] * 2, _MOVED if result.applied else _LEFT))
    return found


def _changes(weights: Sequence[float]) -> List[str]:
    """Return whether a variable that was zero has changed; the inner optimizer decides by how much."""
    if len({repr(weight) for weight in weights}) > 1:
        return [repr(weight) for weight in weights]
    return _LEFT if weights[0] == 0 else _MOVED


def _together(strategy: Any, make: Any) -> List[Found]:
    import tensorflow as tf

    from ..optimizer import LossScaleOptimizer

    with strategy.scope():
        variable = tf.Variable(0.0)
        policy = make()
        optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), policy)
        if hasattr(tf.keras, "Operation"):  # Keras 3 creates the variables of an optimizer once, outside of a step
            optimizer.build([variable])

    def in_replica(pair: Any) -> None:
        gradient = pair[tf.distribute.get_replica_context().replica_id_in_sync_group]
        optimizer.apply_gradients([(gradient, variable)])

    run = getattr(strategy, "run" if hasattr(strategy, "run") else "experimental_run_v2")
    step = tf.function(lambda pair: run(in_replica, args=(pair,)), autograph=False)
    found = []
    for pair in _PAIRS:
        with strategy.scope():
            variable.assign(0.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ForgottenScalingWarning)  # there is no loss to scale
            step(tf.constant(pair, tf.float32))
        found.append((_states(strategy, policy), _changes([float(each) for each in _on_replicas(strategy, variable)])))
    return found


def _states(strategy: Any, policy: Any) -> List[str]:
    """Return the state of each replica as text."""
    if not has_pure_step(policy):
        return [str(exact({"scale": float(policy())}))] * 2
    by_name = {name: _on_replicas(strategy, each) for name, each in policy._remembered().state_variables.items()}
    return [str(exact({name: values[index].item() for name, values in by_name.items()})) for index in range(2)]


def _on_replicas(strategy: Any, variable: Any) -> Sequence[Any]:
    # the value of a Keras 3 variable is the TensorFlow variable
    variable = variable if callable(variable.value) else variable.value
    return [each.numpy() for each in strategy.experimental_local_results(variable)]


if __name__ == "__main__":
    main()
