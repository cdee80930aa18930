"""Each preset, and each policy that comes from another library, against that library's published rule, step by step."""

import numpy as np
import pytest

from scalekeeper import Report, resolve
from scalekeeper.lossscales import advance
from scalekeeper.lossscales.presets import PRESETS
from scalekeeper_test_support import published_rules as rules

SEQUENCES, STEPS = 10, 5000
WINDOWS = [20, 30, 40, 50, 100, 200, 500, 1000]

# name of a preset → the published rule with a period, and what the preset is given for the same
RULES = {
    "pytorch": rules.PyTorch,
    "apex": rules.Apex,
    "deepspeed": rules.DeepSpeed,
    "deepspeed_consecutive": lambda period: rules.DeepSpeed(period, consecutive=True),
    "megatron": rules.Megatron,
    "colossalai": rules.ColossalAI,
    "paddle": rules.Paddle,
    "jmp": rules.Jmp,
    "flax": lambda period: rules.Flax(period - 1),
    "onnxruntime": rules.OnnxRuntime,
    "tf1_contrib": rules.TensorFlow1Contrib,
    "keras3": rules.Keras3,
    "mindspore": rules.MindSpore,
    "openseq2seq": rules.OpenSeq2SeqBackoff,
}


def sequences(share):
    """Reports: quiet stretches, stretches where a share of the steps overflows, and bursts of overflows."""
    for seed in range(SEQUENCES):
        random, reports = np.random.RandomState(seed), []
        while len(reports) < STEPS:
            kind = random.randint(4)
            length = random.randint(1, 4) if kind == 0 else random.randint(20, 90)
            rate = (1.0, 0.0, share, 3 * share)[kind]
            size = random.normal(-6, 3)
            for _ in range(length):
                largest = float(np.float32(2.0 ** (size + random.normal(0, 0.7))))
                reports.append((random.rand() >= rate, 0.0 if random.rand() < 0.01 else largest))
        yield reports[:STEPS]


def traces(policy, rule, reports, room=np.inf):
    """The scale after each step, ours and theirs. Where there is no room for the scale, a step overflows anyway."""
    state, ours, theirs = policy.initial_state(), [], []
    for finite, largest in reports:
        finite = bool(finite and rule.scale <= room)
        report = Report(finite=np.bool_(finite), largest_magnitude=np.float32(largest if finite else np.inf))
        state, applied = advance(policy, state, report)
        assert bool(applied) is finite
        rule.step(finite, largest)
        ours.append(float(state["current_loss_scale"]))
        theirs.append(float(rule.scale))
    return ours, theirs


def require_both_ways(scales, times):
    """The sequence has shown something: the scale grew that often, and backed off that often."""
    changes = np.diff(scales)
    assert min((changes > 0).sum(), (changes < 0).sum()) >= times


def test_every_preset_has_its_rule():
    """None is left out below."""
    assert set(PRESETS) == set(RULES)


@pytest.mark.parametrize("name", sorted(RULES))
def test_presets_follow_the_published_rule(name):
    """The same scale after each of 5,000 steps, for 10 sequences, to the bit."""
    for number, reports in enumerate(sequences(0.04)):
        period = 8 + 2 * number
        policy = resolve({"name": "dynamic/" + name, "increment_period": period})
        ours, theirs = traces(policy, RULES[name](period), reports, room=2.0**26)
        assert ours == theirs
        require_both_ways(ours, 25)


@pytest.mark.parametrize("name", sorted(RULES))
def test_so_they_do_at_their_own_period(name):
    """With nothing but the name: in 5,000 steps most grow twice, so that the default period is right to the step."""
    default = resolve("dynamic/" + name).params.increment_period
    reports = [(step not in (3, 4, 5), 1.0) for step in range(STEPS)]
    ours, theirs = traces(resolve("dynamic/" + name), RULES[name](default), reports)
    assert ours == theirs
    assert 2 <= len(set(ours)) <= 7


@pytest.mark.parametrize("every", [2, 3])
def test_paddle_with_more_patience(every):
    """decr_every_n_nan_or_inf above 1: so many overflows in a row, each time."""
    for reports in sequences(0.2):
        policy = resolve({"name": "dynamic/paddle", "increment_period": 5, "hysteresis": every})
        ours, theirs = traces(policy, rules.Paddle(5, every), reports, room=2.0**26)
        assert ours == theirs
        require_both_ways(ours, 15)


@pytest.mark.parametrize("tolerance", [0.0, 0.05, 0.1, 0.2, 0.3])
def test_tolerant_is_fairseq(tolerance):
    """The same scale after each step, to the bit; the tolerance is reached at equal shares too."""
    for number, reports in enumerate(sequences(0.05)):
        period = 10 + number
        policy = resolve({"name": "fairseq", "increment_period": period, "tolerance": tolerance})
        ours, theirs = traces(policy, rules.Fairseq(period, tolerance), reports, room=2.0**26)
        assert ours == theirs
        require_both_ways(ours, 15)


def test_adaptive_window_is_mindformers():
    """The same scale after each step, to the bit, with windows that lengthen and shorten."""
    for number, reports in enumerate(sequences(0.02)):
        policy = resolve({"name": "adaptive_window", "initial_window": WINDOWS[number % 4]})
        rule = rules.MindFormers(WINDOWS, number % 4)
        ours, theirs = traces(policy, rule, reports, room=2.0**26)
        assert ours == theirs
        require_both_ways(ours, 5)
    assert policy.windows == WINDOWS


def test_adaptive_window_goes_all_the_way():
    """From one step to the longest window and back, on short windows that all are reached."""
    windows, seen = [4, 6, 8, 10, 12], set()
    for reports in sequences(0.01):
        policy = resolve({"name": "adaptive_window", "minimum_window": 4, "maximum_window": 12, "initial_window": 4})
        rule, state = rules.MindFormers(windows), policy.initial_state()
        assert policy.windows == windows
        for finite, largest in reports:
            finite = finite and rule.scale < 2.0**26
            state, _ = advance(policy, state, Report(finite=np.bool_(finite)))
            rule.step(finite, largest)
            assert (state["current_loss_scale"], state["window_place"]) == (rule.scale, rule.index)
            seen.add(rule.index)
    assert seen == {-1, 0, 1, 2, 3, 4}


def test_log_max_is_the_published_statistics():
    """Within 0.2 in log2 of the rule with true logarithms in float64, at every step."""
    for reports in sequences(0.02):
        ours, theirs = traces(resolve("log_max"), rules.LogMax(0.99, 0.999), reports)
        difference = np.abs(np.log2(ours) - np.log2(theirs))
        assert difference.max() <= 0.2
        require_both_ways(ours, 500)
