"""The installed package: its policy has a name, without an import of it anywhere."""

import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
DOCUMENT = os.path.join(os.path.dirname(HERE), "underflow.yaml")


def run(*arguments):
    return subprocess.check_output(["scalekeeper", *arguments], universal_newlines=True)


def test_it_is_listed_with_its_origin():
    """Name, purpose, distribution and version; its parameters if it is asked for by name."""
    rows = [line.split("\t") for line in run("list").splitlines()]
    (row,) = [row for row in rows if row[0] == "underflow"]
    assert row[1].startswith("Doubles when too many gradients have been zero for some steps in a row")
    assert row[2] == "scalekeeper-underflow 0.1.0"
    described = run("list", "underflow")
    assert all(name in described for name in ("initial_loss_scale", "zero_share", "patience"))


def test_a_document_may_name_it():
    """And its parameters are checked."""
    assert run("validate", DOCUMENT).strip().startswith(f"{DOCUMENT}: ok (adam with UnderflowLossScale, for ")


def test_build_makes_it():
    """In a real optimizer, which takes a step."""
    import tensorflow as tf

    import scalekeeper

    optimizer = scalekeeper.build(DOCUMENT)
    variable = tf.Variable([1.0, 2.0])
    optimizer.apply_gradients([(tf.constant([0.0, float("nan")]), variable)])
    assert optimizer.loss_scale.state() == {"current_loss_scale": 2048.0, "low_steps": 0}
    assert variable.numpy().tolist() == [1.0, 2.0]
