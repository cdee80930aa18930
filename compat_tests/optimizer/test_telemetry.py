"""Telemetry of a run: counted on the device, read on request; and an end to a run that is stuck."""

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper import InvalidSpecError, LossScaleOptimizer, TooManySkipsError
from scalekeeper_test_support.installed_keras import IS_KERAS_3, OPTIMIZERS, number

KINDS = pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
WAYS = pytest.mark.parametrize("way", ["eager", "traced"])
GOOD, NAN, INF = 1.0, float("nan"), float("inf")


class Run:
    """Two variables, and steps with gradients of one's choice for them."""

    def __init__(self, kind="default", way="traced", loss_scale="dynamic", **options):
        self.optimizer = LossScaleOptimizer(OPTIMIZERS[kind].SGD(0.5), loss_scale, **options)
        self.first = tf.Variable([1.0, 2.0], name="first")
        self.second = tf.Variable(3.0, name="second")
        self.traces = 0
        self._step = tf.function(self._apply) if way == "traced" else self._apply

    def _apply(self, first, second):
        self.traces += 1
        self.optimizer.apply_gradients([(tf.stack([first, 0.0]), self.first), (second, self.second)])

    def step(self, first=GOOD, second=GOOD):
        self._step(tf.constant(first), tf.constant(second))

    def counted(self):
        telemetry = self.optimizer.telemetry
        return telemetry.steps, telemetry.skipped, telemetry.skipped_in_a_row, telemetry.last_skipped_step


@KINDS
@WAYS
@pytest.mark.parametrize("skipped_steps", ["advance", "hold"])
def test_steps_and_skips_are_counted(kind, way, skipped_steps):
    """Steps, skipped ones, those in a row and the last of them, whether a skipped step counts in iterations or not."""
    run, counted = Run(kind, way, skipped_steps=skipped_steps), []
    for gradient in (GOOD, NAN, INF, GOOD, NAN, GOOD, GOOD):
        run.step(gradient)
        counted.append(run.counted())
    assert counted == [
        (1, 0, 0, None),
        (2, 1, 1, 2),
        (3, 2, 2, 3),
        (4, 2, 0, 3),
        (5, 3, 1, 5),
        (6, 3, 0, 5),
        (7, 3, 0, 5),
    ]
    assert run.optimizer.telemetry.skip_rate == 3 / 7
    assert run.optimizer.telemetry.loss_scale == 2.0**12
    assert number(run.optimizer.inner_optimizer.iterations) == (7 if skipped_steps == "advance" else 4)


@KINDS
def test_the_very_first_step_may_be_skipped(kind):
    """A run of skipped steps that begins with the first step is counted from it."""
    run = Run(kind)
    assert run.counted() == (0, 0, 0, None)
    run.step(NAN)
    run.step(NAN)
    assert run.counted() == (2, 2, 2, 2)
    assert Run(kind).optimizer.telemetry.skip_rate == 0.0


@KINDS
def test_a_fixed_scale_that_skips_is_counted_too(kind):
    """Counting belongs to the optimizer, whatever the policy."""
    run = Run(kind, loss_scale={"name": "fixed", "loss_scale_value": 8.0, "skip_nonfinite": True})
    for gradient in (NAN, GOOD, NAN):
        run.step(gradient)
    assert run.counted() == (3, 2, 1, 3)
    assert run.optimizer.telemetry.loss_scale == 8.0


@KINDS
@WAYS
def test_overflows_are_attributed_on_request(kind, way):
    """For each variable, the skipped steps at which its gradient was not finite, and those of the last such step."""
    run = Run(kind, way, attribute_overflows=True)
    for first, second in ((GOOD, GOOD), (NAN, GOOD), (GOOD, INF), (GOOD, GOOD), (INF, NAN)):
        run.step(first, second)
    assert run.optimizer.telemetry.overflows == {"first": 2, "second": 2}
    assert run.optimizer.telemetry.last_overflows == ["first", "second"]
    run.step(GOOD, -INF)
    assert run.optimizer.telemetry.overflows == {"first": 2, "second": 3}
    assert run.optimizer.telemetry.last_overflows == ["second"]
    assert Run(kind, way).optimizer.telemetry.overflows == {}


def test_different_variables_in_different_steps_are_told_apart():
    """Two calls with other variables have counts of their own, which add up by variable."""
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), "dynamic", attribute_overflows=True)
    first, second = tf.Variable(1.0, name="first"), tf.Variable(1.0, name="second")
    if IS_KERAS_3:
        optimizer.build([first, second])
    else:
        optimizer.apply_gradients([(tf.constant(0.0), first), (tf.constant(0.0), second)])
    optimizer.apply_gradients([(tf.constant(NAN), first), (tf.constant(1.0), second)])
    optimizer.apply_gradients([(None, first), (tf.constant(INF), second)])
    assert optimizer.telemetry.overflows == {"first": 1, "second": 1}
    assert optimizer.telemetry.last_overflows == ["second"]


@KINDS
@WAYS
def test_the_gradients_can_be_watched(kind, way):
    """The largest magnitude of the unscaled gradients, infinity where one is not finite, and the share of zeros."""
    run = Run(kind, way, watch=["largest_magnitude", "zero_share"])
    assert np.isnan(run.optimizer.telemetry.zero_share)
    run.step(-4.0, 2.0)
    assert run.optimizer.telemetry.largest_magnitude == 4.0
    assert run.optimizer.telemetry.zero_share == np.float32(1 / 3)
    run.step(NAN, 0.0)
    assert run.optimizer.telemetry.largest_magnitude == INF
    assert run.optimizer.telemetry.zero_share == np.float32(2 / 3)
    assert Run(kind, way).optimizer.telemetry.zero_share is None


@KINDS
def test_an_eager_run_that_is_stuck_ends(kind):
    """After so many skipped steps in a row, an error says how many, which step, the scale, and whose gradients."""
    run = Run(kind, "eager", stop_after_skips=3)
    for gradient in (NAN, NAN, GOOD, NAN, NAN):
        run.step(gradient)
    with pytest.raises(TooManySkipsError) as caught:
        run.step(GOOD, INF)
    error = caught.value
    assert (error.skipped_in_a_row, error.step, error.loss_scale, error.variables) == (3, 6, 2.0**10, ("second",))
    for words in ("3 steps in a row", "step 6", "the loss scale is 1024 now", "Not finite: second", "What to try: "):
        assert words in str(error)
    np.testing.assert_array_equal(run.first.numpy(), [0.5, 2.0])


@KINDS
def test_a_traced_run_that_is_stuck_ends(kind):
    """A graph raises TensorFlow's error with the same figures and text, until a step is good; the state is kept."""
    run = Run(kind, stop_after_skips=3)
    for gradient in (NAN, NAN, GOOD, NAN, NAN):
        run.step(gradient)
    traces = run.traces
    for step in (6, 7):
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            run.step(GOOD, INF)
        last = str(caught.value).rpartition("assertion failed: ")[2]
        for words in ("3 steps in a row", f"[{step}]", "[first second]", "[0 1]", "What to try: ", "[[{{node "):
            assert words in last
        assert "3_steps_in_a_row_were_skipped__raise_if_stuck_tells_more" in last
    assert run.counted() == (7, 6, 4, 7)
    with pytest.raises(TooManySkipsError, match="4 steps in a row were skipped, the last of them step 7; .*: second"):
        run.optimizer.raise_if_stuck()
    run.step()
    assert run.counted() == (8, 6, 0, 7)
    run.optimizer.raise_if_stuck()
    assert run.traces == traces


@KINDS
def test_one_can_ask_whether_a_run_is_stuck(kind):
    """Without stop_after_skips nothing ends by itself, and one asks with a number."""
    run = Run(kind)
    for _ in range(5):
        run.step(NAN)
    run.optimizer.raise_if_stuck()
    run.optimizer.raise_if_stuck(6)
    with pytest.raises(TooManySkipsError, match=r"5 steps in a row .* Not finite: \(no variable is known\)"):
        run.optimizer.raise_if_stuck(5)


@KINDS
def test_the_options_are_in_the_configuration_only_if_asked_for(kind):
    """They survive get_config and from_config, and leave a configuration alone that does without them."""
    options = {"stop_after_skips": 7, "attribute_overflows": True, "watch": ["zero_share"]}
    plain, asked = Run(kind).optimizer.get_config(), Run(kind, **options).optimizer.get_config()
    assert {name: asked[name] for name in asked if name not in plain} == options
    again = LossScaleOptimizer.from_config(asked).get_config()
    assert {name: again[name] for name in options} == options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stop_after_skips": 0}, "stop_after_skips: 0 must be greater than or equal to 1"),
        ({"stop_after_skips": "3"}, "stop_after_skips: '3' must be an integer"),
        ({"watch": ["everything"]}, r"watch\[0\]: 'everything' must be 'largest_magnitude' or 'zero_share'"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options, words):
    """The error says what was given and what is allowed."""
    with pytest.raises(InvalidSpecError, match=words):
        LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), "dynamic", **options)


def test_a_document_has_the_same_options():
    """build makes an optimizer that keeps the same eye on its steps."""
    document = {"optimizer": "sgd", "stop_after_skips": 2, "attribute_overflows": True, "watch": ["zero_share"]}
    optimizer, variable = scalekeeper.build(document), tf.Variable(1.0, name="only")
    optimizer.apply_gradients([(tf.constant(NAN), variable)])
    assert optimizer.telemetry.overflows == {"only": 1}
    assert optimizer.telemetry.zero_share == 0.0
    with pytest.raises(TooManySkipsError):
        optimizer.apply_gradients([(tf.constant(NAN), variable)])


@pytest.mark.skipif(IS_KERAS_3, reason="it has no graph mode")
def test_in_a_graph():
    """In TF1's graph mode the counters are variables of the graph, and an operation ends a run that is stuck."""
    kind = "legacy" if "legacy" in OPTIMIZERS else "default"  # of the others, none works in a graph
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.Variable(1.0, name="only")
        factor = tf.compat.v1.placeholder(tf.float32, [])
        options = {"stop_after_skips": 3, "attribute_overflows": True, "watch": ["largest_magnitude"]}
        optimizer = LossScaleOptimizer(OPTIMIZERS[kind].SGD(0.5), "dynamic", **options)
        updates = optimizer.get_updates(variable * factor, [variable])
        session.run(tf.compat.v1.global_variables_initializer())
        told = []
        for value in (4.0, INF, INF, 2.0, INF, INF):
            session.run(updates, {factor: value})
            each = optimizer.telemetry
            told.append((each.steps, each.skipped, each.skipped_in_a_row, each.largest_magnitude))
        assert told == [(1, 0, 0, 4), (2, 1, 1, INF), (3, 2, 2, INF), (4, 2, 0, 2), (5, 3, 1, INF), (6, 4, 2, INF)]
        assert optimizer.telemetry.overflows == {"only": 4}
        with pytest.raises(tf.errors.InvalidArgumentError, match="3_steps_in_a_row_were_skipped"):
            session.run(updates, {factor: INF})
        assert session.run(variable) == -2.0


# Saving and loading


def trained(kind, **options):
    run = Run(kind, attribute_overflows=True, **options)
    for gradient in (GOOD, NAN, GOOD, NAN, NAN):
        run.step(gradient)
    return run


@KINDS
def test_a_state_carries_the_counters(kind):
    """state_dict and load_state_dict: the same telemetry, and a run of skipped steps goes on."""
    source, target = trained(kind), Run(kind, attribute_overflows=True)
    target.optimizer.load_state_dict(source.optimizer.state_dict(), [target.first, target.second])
    assert target.counted() == (5, 3, 2, 5)
    target.step(GOOD, NAN)
    assert target.counted() == (6, 4, 3, 6)
    assert target.optimizer.telemetry.overflows == {"first": 3, "second": 1}


@KINDS
def test_a_state_without_skips_resets_the_counters(kind):
    """The loaded telemetry replaces the old one, also if it is empty."""
    run, clean = trained(kind), Run(kind)
    clean.step()
    run.optimizer.load_state_dict(clean.optimizer.state_dict(), [run.first, run.second])
    assert run.counted() == (1, 0, 0, None)
    assert run.optimizer.telemetry.overflows == {"first": 0, "second": 0}


@KINDS
def test_a_checkpoint_carries_the_counters(kind, tmp_path):
    """A plain tf.train.Checkpoint, into a new optimizer and into a used one, without tracing anew."""
    path = tf.train.Checkpoint(optimizer=trained(kind).optimizer).write(str(tmp_path / "file"))
    for target in (Run(kind), trained(kind)):
        tf.train.Checkpoint(optimizer=target.optimizer).restore(path)
        assert target.optimizer.telemetry.skipped == 3
        target.step(NAN)
        assert target.counted() == (6, 4, 3, 6)


@KINDS
def test_a_checkpoint_of_a_run_without_skips_is_tensorflows_own(kind, tmp_path):
    """There is nothing more in it, and restoring it resets the counters."""
    clean = Run(kind)
    clean.step()
    root = tf.train.Checkpoint(optimizer=clean.optimizer)
    path = root.write(str(tmp_path / "clean"))
    assert not [name for name, _ in tf.train.list_variables(path) if "skip" in name]
    used = trained(kind)
    tf.train.Checkpoint(optimizer=used.optimizer).restore(path)
    assert used.counted() == (1, 0, 0, None)
    clean.step(NAN)
    names = [name for name, _ in tf.train.list_variables(root.write(str(tmp_path / "skipped"))) if "skip" in name]
    assert sorted(name.split("/")[2] for name in names) == ["in_a_row", "last", "total"]


def test_plain_momentum_free_sgd_comes_back_from_a_state():
    """Slots that some versions make without ever using them are neither missed nor taken for something else."""
    for kind in OPTIMIZERS:
        source, target = Run(kind), Run(kind)
        source.step()
        target.optimizer.load_state_dict(source.optimizer.state_dict(), [target.first, target.second])
        assert number(target.optimizer.inner_optimizer.iterations) == 1


def test_counting_is_in_the_branch_of_skipped_steps_alone():
    """Outside of the conditional around the inner optimizer, no operation uses a counter."""
    run = Run(stop_after_skips=5, attribute_overflows=True)
    run.step()
    function = run._step.get_concrete_function(tf.constant(1.0), tf.constant(1.0))
    skips = run.optimizer._monitor.counters
    counters = [*skips.module.variables, *skips.attribution.variables]
    assert len(counters) == 5
    captured = dict(zip(map(id, function.captured_inputs), function.inputs[-len(function.captured_inputs) :]))
    users = [each.type for counter in counters for each in captured[id(counter.handle)].consumers()]
    assert set(users) == {"If"}
