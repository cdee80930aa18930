"""The installed package: its policy has a name, without an import of it anywhere."""

import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
DOCUMENT = os.path.join(os.path.dirname(HERE), "underflow.yaml")


def run(*arguments):
    return subprocess.check_output(["scalekeeper", *arguments], universal_newlines=True)


def test_it_is_listed_with_its_origin():
    """Name, parameters, distribution and version."""
    rows = [line.split("\t") for line in run("list").splitlines()]
    (row,) = [row for row in rows if row[0] == "underflow"]
    assert row[1].startswith("initial_loss_scale=1024.0, zero_share=0.5, patience=20")
    assert row[2] == "scalekeeper-underflow 0.1.0"


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
