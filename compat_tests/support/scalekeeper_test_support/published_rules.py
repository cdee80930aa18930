"""The rules of other libraries, written as they publish them: ordinary control flow, and their own bookkeeping.

Each takes a step with ``finite`` (and ``largest``, the largest magnitude) and has the scale in ``scale``. Arithmetic is
in float32 where a library's is, and exact anyway for powers of two. ``FLOOR`` stands where a library has no floor.
"""

import math

import numpy as np

FLOOR = 2.0**-126
LARGEST = np.finfo(np.float32).max


class PyTorch:
    """aten's _amp_update_scale_: a growth tracker, and growth only where it is finite."""

    def __init__(self, interval, scale=2.0**16, growth=2.0, backoff=0.5):
        self.scale, self.interval, self.growth, self.backoff, self.tracker = scale, interval, growth, backoff, 0

    def step(self, finite, largest):
        if not finite:
            self.scale, self.tracker = max(self.scale * self.backoff, FLOOR), 0
            return
        self.tracker += 1
        if self.tracker == self.interval:
            if self.scale * self.growth <= LARGEST:
                self.scale *= self.growth
            self.tracker = 0


class GradScaler:
    """torch.amp.GradScaler with several optimizers: each steps if its own gradients are finite, one update for all.

    Attributes:
        rooms: The largest loss scale that the gradients of each optimizer stand.
    """

    def __init__(self, optimizers, interval):
        self.rule, self.rooms = PyTorch(interval), [2.0 ** (18 + 2 * index) for index in range(optimizers)]

    @staticmethod
    def overflows(steps, optimizers):
        """Return which gradients are infinite whatever the loss scale is: at random, for each optimizer by itself."""
        return np.random.RandomState(optimizers).rand(steps, optimizers) < 0.04

    def step(self, overflows):
        """Return the loss scale of the step, and whether each optimizer applies its gradients."""
        scale = self.rule.scale
        applied = [not bad and scale <= room for bad, room in zip(overflows, self.rooms)]
        self.rule.step(all(applied), None)
        return scale, applied


class Apex:
    """apex.amp: unskipped steps, a ceiling of 2**24."""

    def __init__(self, window):
        self.scale, self.window, self.unskipped = 2.0**16, window, 0

    def step(self, finite, largest):
        if finite:
            self.unskipped += 1
        else:
            self.scale, self.unskipped = max(self.scale / 2, FLOOR), 0
        if self.unskipped == self.window:
            self.scale, self.unskipped = min(2.0**24, self.scale * 2), 0


class DeepSpeed:
    """Iteration numbers, a delayed shift; it raises at the floor, where this goes on."""

    def __init__(self, window, consecutive=False, shift=2):
        self.scale, self.window, self.consecutive, self.shift, self.left = 2.0**16, window, consecutive, shift, shift
        self.iteration, self.last_overflow = 0, -1

    def step(self, finite, largest):
        if not finite:
            if self.shift == 1 or self.left == 1:
                self.scale = max(self.scale / 2, 1.0)
            else:
                self.left -= 1
            self.last_overflow = self.iteration
        else:
            if self.consecutive:
                self.left = self.shift
            if (self.iteration - self.last_overflow) % self.window == 0:
                if not self.consecutive:
                    self.left = self.shift
                self.scale *= 2
        self.iteration += 1


class Megatron:
    """A growth tracker and a hysteresis tracker that may go below 0."""

    def __init__(self, interval, scale=2.0**32, minimum=1.0, hysteresis=2):
        self.scale, self.interval, self.minimum = scale, interval, minimum
        self.hysteresis, self.hysteresis_tracker, self.growth_tracker = hysteresis, hysteresis, 0

    def step(self, finite, largest):
        if not finite:
            self.growth_tracker = 0
            self.hysteresis_tracker -= 1
            if self.hysteresis_tracker <= 0:
                self.scale = max(self.scale * 0.5, self.minimum)
        else:
            self.growth_tracker += 1
            if self.growth_tracker == self.interval:
                self.growth_tracker, self.hysteresis_tracker = 0, self.hysteresis
                self.scale *= 2


class ColossalAI:
    """Counts up what Megatron counts down."""

    def __init__(self, interval):
        self.scale, self.interval, self.growth_step, self.hysteresis_step = 2.0**16, interval, 0, 0

    def step(self, finite, largest):
        if not finite:
            self.hysteresis_step += 1
            self.growth_step = 0
            if self.hysteresis_step >= 2:
                self.scale = max(self.scale * 0.5, FLOOR)
            return
        self.growth_step += 1
        if self.growth_step == self.interval:
            self.growth_step = self.hysteresis_step = 0
            self.scale *= 2


class Paddle:
    """Finite and non-finite steps in a row."""

    def __init__(self, every, decrease_every=1):
        self.scale, self.every, self.decrease_every, self.good, self.bad = 2.0**16, every, decrease_every, 0, 0

    def step(self, finite, largest):
        if not finite:
            self.good = 0
            self.bad += 1
            if self.bad == self.decrease_every:
                self.scale, self.bad = max(self.scale * 0.5, FLOOR), 0
            return
        self.bad = 0
        self.good += 1
        if self.good == self.every:
            self.good = 0
            self.scale *= 2


class Jmp:
    """A counter modulo the period."""

    def __init__(self, period):
        self.scale, self.period, self.counter = 2.0**15, period, 0

    def step(self, finite, largest):
        if not finite:
            self.scale = max(1.0, self.scale / 2)
        elif self.counter == self.period - 1 and self.scale * 2 <= LARGEST:
            self.scale *= 2
        self.counter = (self.counter + 1) % self.period if finite else 0


class Flax:
    """Asks whether the interval is over before it counts this step."""

    def __init__(self, interval):
        self.scale, self.interval, self.finite_steps = 2.0**16, interval, 0

    def step(self, finite, largest):
        grows = self.finite_steps == self.interval
        if not finite:
            self.scale = max(self.scale * 0.5, FLOOR)
        elif grows:
            self.scale = min(self.scale * 2, float(LARGEST))
        self.finite_steps = 0 if grows or not finite else self.finite_steps + 1


class OnnxRuntime:
    """Stable steps, clamped on both sides."""

    def __init__(self, window):
        self.scale, self.window, self.stable = 2.0**16, window, 0

    def step(self, finite, largest):
        if finite:
            self.stable += 1
            if self.stable >= self.window:
                self.scale, self.stable = min(2.0**24, self.scale * 2), 0
        else:
            self.scale, self.stable = max(1.0, self.scale / 2), 0


class TensorFlow1Contrib:
    """Good steps in a row, non-finite steps since the last change; a ratio that is not a power of two, in float32."""

    def __init__(self, every, scale=2.0**15, decrease_every=2):
        self.scale, self.every, self.decrease_every, self.good, self.bad = (
            np.float32(scale),
            every,
            decrease_every,
            0,
            0,
        )

    def step(self, finite, largest):
        if finite:
            if self.good + 1 >= self.every:
                with np.errstate(over="ignore"):
                    larger = self.scale * np.float32(2)
                self.scale = larger if np.isfinite(larger) else self.scale
                self.good = self.bad = 0
            else:
                self.good += 1
        elif self.bad + 1 >= self.decrease_every:
            self.scale = max(np.float32(1), self.scale * np.float32(0.8))
            self.good = self.bad = 0
        else:
            self.bad += 1
            self.good = 0


class Keras3:
    """Looks whether the counter is one below the number of growth steps."""

    def __init__(self, growth_steps):
        self.scale, self.growth_steps, self.counter = 2.0**15, growth_steps, 0

    def step(self, finite, largest):
        if not finite:
            self.counter, self.scale = 0, max(self.scale / 2, FLOOR)
        elif self.counter == self.growth_steps - 1:
            self.counter, self.scale = 0, self.scale * 2
        else:
            self.counter += 1


class MindSpore:
    """Iteration numbers from 1 on."""

    def __init__(self, window):
        self.scale, self.window, self.iteration, self.last_overflow = 2.0**24, window, 1, 0

    def step(self, finite, largest):
        if not finite:
            self.scale, self.last_overflow = max(self.scale * 0.5, 1.0), self.iteration
        elif (self.iteration - self.last_overflow) % self.window == 0:
            self.scale *= 2
        self.iteration += 1


class OpenSeq2SeqBackoff:
    """Iteration numbers from 0 on, clipped on both sides."""

    def __init__(self, window):
        self.scale, self.window, self.iteration, self.last_overflow = 2.0**24, window, 0, -1

    def step(self, finite, largest):
        if not finite:
            self.scale, self.last_overflow = min(max(self.scale / 2, 1.0), 2.0**24), self.iteration
        elif (self.iteration - self.last_overflow) % self.window == 0:
            self.scale = min(max(self.scale * 2, 1.0), 2.0**24)
        self.iteration += 1


class Fairseq:
    """Iteration numbers of the last overflow and the last change; its threshold is the floor."""

    def __init__(self, window, tolerance, threshold=1e-4):
        self.scale, self.window, self.tolerance, self.threshold = 2.0**15, window, tolerance, threshold
        self.iteration, self.last_overflow, self.last_rescale, self.overflows = 0, -1, -1, 0

    def step(self, finite, largest):
        if finite:
            if (self.iteration - self.last_overflow) % self.window == 0:
                self.scale *= 2
                self.last_rescale = self.iteration
        else:
            since = self.iteration - self.last_rescale
            self.last_overflow = self.iteration
            self.overflows += 1
            if self.overflows / float(since) >= self.tolerance:
                self.scale = max(self.scale / 2, float(np.float32(self.threshold)))
                self.last_rescale, self.overflows = self.iteration, 0
        self.iteration += 1


class MindFormers:
    """The list of windows, an index into it, and counters modulo 4, in the order of the original's assignments."""

    def __init__(self, windows, index=0, scale=2.0**15):
        self.scale, self.windows, self.index, self.window = scale, windows, index, windows[index]
        self.iteration, self.last, self.up, self.down = 1, 0, 0, 0

    def step(self, finite, largest):
        should_increase = self.window <= self.iteration - self.last
        if not finite:
            self.scale = max(self.scale * 0.5, 1.0)
        if not finite or should_increase:
            self.last = self.iteration
        increases = should_increase and finite
        self.iteration += 1
        if increases:
            self.scale *= 2
            self.up = (self.up + 1) % 4
            self.down = 0
        if self.up == 3 and self.index != len(self.windows) - 1:
            self.index += 1
            self.up = 0
            self.window = self.windows[max(self.index, 0)]
        if not finite:
            self.down = (self.down + 1) % 4
            if self.down == 3 and self.index not in (-1, 0):
                self.window, self.index, self.up, self.down = 1, -1, 0, 0


class LogMax:
    """OpenSeq2Seq's statistics in float64 with true logarithms, and overflows as our documentation has them."""

    def __init__(self, beta1, beta2, log_max=16.0, deviations=3.09):
        self.scale, self.beta1, self.beta2, self.log_max, self.deviations = 1.0, beta1, beta2, log_max, deviations
        self.mean = self.slow = self.squares = 0.0
        self.power1 = self.power2 = 1.0

    def step(self, finite, largest):
        if finite and largest == 0:
            return
        x = math.log2(largest) if finite else self.log_max - math.log2(self.scale) + 1
        self.mean = self.beta1 * self.mean + (1 - self.beta1) * x
        self.slow = self.beta2 * self.slow + (1 - self.beta2) * x
        self.squares = self.beta2 * self.squares + (1 - self.beta2) * x * x
        self.power1 *= self.beta1
        self.power2 *= self.beta2
        slow = self.slow / (1 - self.power2)
        deviation = math.sqrt(max(self.squares / (1 - self.power2) - slow * slow, 0.0))
        log_scale = self.log_max - (self.mean / (1 - self.power1) + self.deviations * deviation)
        highest = math.log2(self.scale) - 1
        if not finite and log_scale > highest:
            self.mean += (log_scale - highest) * (1 - self.power1)
            log_scale = highest
        self.scale = min(max(2.0**log_scale, 1.0), 2.0**24)
