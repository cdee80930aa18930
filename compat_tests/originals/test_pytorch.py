"""dynamic/pytorch beside the real torch.amp.GradScaler, with a real optimizer, on a CPU."""

import re

import numpy as np
import pytest
import torch

from scalekeeper_test_support import published_rules
from scalekeeper_test_support.repository import repository_path

PAGE = repository_path("docs", "coming_from", "pytorch.md")


def theirs(gradients, interval, room, **factors):
    """The scale before each step, and whether the optimizer's step moved the weight."""
    scaler = torch.amp.GradScaler("cpu", growth_interval=interval, **factors)
    weight = torch.nn.Parameter(torch.zeros(()))
    optimizer, found = torch.optim.SGD([weight], lr=1.0), []
    scaler.scale(torch.zeros(()))  # makes its state
    for gradient in gradients:
        scale, before = scaler.get_scale(), weight.item()
        weight.grad = torch.tensor(float(gradient) * scale if scale <= room else float("inf"), dtype=torch.float32)
        scaler.step(optimizer)
        scaler.update()
        found.append((scale, weight.item() != before))
    return found


def test_the_real_grad_scaler(sequence, ours):
    """The same scale and the same decision at each of 5,000 steps."""
    number, gradients = sequence
    spec = {"name": "dynamic/pytorch", "increment_period": 8 + number}
    assert ours(spec, gradients, room=2.0**26) == theirs(gradients, 8 + number, 2.0**26)


def test_other_factors(sequence, ours):
    """growth_factor and backoff_factor mean what they mean there, to the bit."""
    _, gradients = sequence
    factors = {"growth_factor": 1.5, "backoff_factor": 0.75}
    spec = dict(factors, name="dynamic/pytorch", increment_period=5)
    assert ours(spec, gradients, room=2.0**26) == theirs(gradients, 5, 2.0**26, **factors)


def test_the_defaults_are_those_of_the_class():
    """Taken from the installed library."""
    from scalekeeper import resolve

    scaler, params = torch.amp.GradScaler("cpu"), resolve("dynamic/pytorch").params
    scaler.scale(torch.zeros(()))
    assert params.initial_loss_scale == scaler.get_scale()
    assert params.increment_period == scaler.get_growth_interval()
    assert (params.multiplier, 1 / params.multiplier) == (scaler.get_growth_factor(), scaler.get_backoff_factor())
    assert np.float32(params.minimum) == np.finfo(np.float32).tiny


def from_grad_scaler():
    """The function that the page shows."""
    with open(PAGE, encoding="utf-8") as stream:
        blocks = re.findall(r"```python\n(.*?)```", stream.read(), re.DOTALL)
    (block,) = [block for block in blocks if "def from_grad_scaler(" in block]
    namespace = {}
    exec(block, namespace)
    return namespace["from_grad_scaler"]


def test_a_state_dict_goes_on_as_the_page_says(sequence):
    """Taken at several steps in the middle, with other factors too: the same scale and counter from there on."""
    number, gradients = sequence
    convert = from_grad_scaler()
    for start, factors in ((1000 + 7 * number, {}), (2500, {"growth_factor": 1.5, "backoff_factor": 0.75})):
        scaler = torch.amp.GradScaler("cpu", growth_interval=8 + number, **factors)
        weight = torch.nn.Parameter(torch.zeros(()))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scaler.scale(torch.zeros(()))
        ours, changes = None, 0
        for step, gradient in enumerate(gradients):
            if step == start:
                ours = convert(scaler.state_dict())
            scale = scaler.get_scale()
            is_bad = not np.isfinite(gradient) or scale > 2.0**26
            weight.grad = torch.tensor(float("inf") if is_bad else 1.0)
            scaler.step(optimizer)
            scaler.update()
            if ours is not None:
                ours.update([np.inf if is_bad else 1.0])
                saved = scaler.state_dict()
                assert ours.state() == {"current_loss_scale": saved["scale"], "good_steps": saved["_growth_tracker"]}
                changes += saved["scale"] != scale
        assert changes > 20


@pytest.mark.parametrize("count", [2, 3])
def test_the_real_grad_scaler_with_several_optimizers(count):
    """The rule that SharedLossScale is compared with: the same scale and decisions at each of 2,000 steps."""
    rule = published_rules.GradScaler(count, interval=7)
    scaler = torch.amp.GradScaler("cpu", growth_interval=7)
    weights = [torch.nn.Parameter(torch.zeros(())) for _ in range(count)]
    optimizers = [torch.optim.SGD([weight], lr=1.0) for weight in weights]
    scaler.scale(torch.zeros(()))  # makes its state
    for overflows in rule.overflows(2000, count):
        scale, before = scaler.get_scale(), [weight.item() for weight in weights]
        for weight, overflow, room in zip(weights, overflows, rule.rooms):
            weight.grad = torch.tensor(float("inf") if overflow or scale > room else scale)
        for optimizer in optimizers[:-1]:  # the last one is unscaled by step
            scaler.unscale_(optimizer)
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        applied = [weight.item() == old - 1.0 for weight, old in zip(weights, before)]
        assert (scale, applied) == rule.step(overflows)


def test_what_the_real_grad_scaler_refuses():
    """Unscaling twice, unscaling after the step, a second step and an update without any are errors there."""
    scaler, weight = torch.amp.GradScaler("cpu"), torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler.scale(torch.zeros(()))
    weight.grad = torch.ones(())
    with pytest.raises(AssertionError):
        scaler.update()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    for method in (scaler.unscale_, scaler.step):
        with pytest.raises(RuntimeError):
            method(optimizer)
