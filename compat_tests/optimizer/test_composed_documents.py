"""``build`` makes the same optimizer of documents in pieces as of the document that ``show`` prints."""

import os
import random
import unittest.mock

import pytest
from click.testing import CliRunner

import scalekeeper
from scalekeeper.cli import main
from scalekeeper.registry import target
from scalekeeper_test_support.composed_documents import composed

COUNT = int(os.environ.get("SCALEKEEPER_EXAMPLES", "50"))


def plain(value):
    """A configuration without the names that Keras counts up."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key not in ("name", "registered_name")}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def configuration(optimizer):
    """The class and the arguments of the inner optimizer, and those of the loss scale."""
    inner, policy = optimizer.inner_optimizer, optimizer.loss_scale
    return type(inner), plain(inner.get_config()), type(policy), policy._parameters(), plain(optimizer.get_config())


def built(document, **options):
    """The configuration of what build makes; or why TensorFlow refuses it, as Nadam refuses schedules up to 2.10."""
    try:
        return configuration(scalekeeper.build(document, **options))
    except scalekeeper.ScalekeeperError:
        raise
    except ValueError as error:
        return str(error)


def stated(path, made, folder):
    """A file with the output of show --yaml."""
    options = [f"--set={each}" for each in made.overrides] + [f"--allow-env={each}" for each in made.environment]
    result = CliRunner().invoke(main, ["show", path, "--yaml", *options])
    assert result.exit_code == 0, result.output
    printed = os.path.join(str(folder), "printed.yaml")
    with open(printed, "w", encoding="utf-8") as stream:
        stream.write(result.output)
    return printed


def test_building_what_show_prints(tmp_path):
    """Random documents of the installed TensorFlow: from pieces, as one, and with every argument stated."""
    refused = 0
    for number in range(COUNT):
        rng = random.Random(number)
        made = composed(rng, target())
        folder = tmp_path / str(number)
        path = made.write(folder)
        with unittest.mock.patch.dict(os.environ, made.environment):
            pieces = built(path, overrides=made.overrides, allow_env=list(made.environment))
            printed = built(stated(path, made, folder))
        whole = built(made.expected)
        refused += isinstance(whole, str)
        assert pieces == whole, made
        assert printed == whole, made
    assert refused <= COUNT * 0.1


def test_every_optimizer_with_all_its_defaults(tmp_path):
    """Stating every default of every optimizer and schedule changes nothing."""
    for name, entry in sorted(target().table["optimizers"].items()):
        document = {"optimizer": name}
        if entry["required"]:
            continue
        made = unittest.mock.Mock(environment={}, overrides=[])
        path = tmp_path / "train.yaml"
        path.write_text(f"optimizer: {name}\n", encoding="utf-8")
        printed = scalekeeper.build(stated(str(path), made, tmp_path))
        assert configuration(printed) == configuration(scalekeeper.build(document)), name


def test_overrides_in_build(tmp_path):
    """A value, a name in place of a mapping, and a deletion; nothing is built if one is wrong."""
    path = tmp_path / "train.yaml"
    path.write_text(
        "optimizer: {name: sgd, momentum: 0.9}\nloss_scale: {name: dynamic, minimum: 2}\n", encoding="utf-8"
    )
    optimizer = scalekeeper.build(
        path, overrides=["optimizer.learning_rate=0.5", "~optimizer.momentum", "loss_scale=dynamic/pytorch"]
    )
    assert optimizer.inner_optimizer.get_config()["learning_rate"] == 0.5
    assert optimizer.inner_optimizer.get_config()["momentum"] == 0.0
    assert float(optimizer.loss_scale) == 65536.0
    with pytest.raises(scalekeeper.DocumentError, match=r"<override 1>:1:25: optimizer\.learning_rate"):
        scalekeeper.build(path, overrides=["optimizer.learning_rate=x"])
