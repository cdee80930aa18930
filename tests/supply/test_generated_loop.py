"""A policy's step is written out as Python and executed: no text of a policy, a document or a file gets into it."""

import io
import re
import tokenize

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalekeeper import LossScale, resolve
from scalekeeper.registry import loss_scales
from scalekeeper.simulation._step_codegen import _recorded, generate_loop

PARAMETERS = {
    "fixed": {"loss_scale_value": 64.0},
    "scheduled": {"values": [64.0, 1000.0, 3.0], "boundaries": [7, 30]},
}
BUILT_IN = [row.name for row in loss_scales.listing() if row.origin == "built in"]
HOSTILE = "x]\n    __import__('os').system('false')\n    [y"
# all words that the source may hold, but for those that are made of a letter and a number
WORDS = {
    *("and", "def", "else", "for", "if", "in", "not", "or", "pass", "return", "True", "False"),
    *("abs", "divmod", "int", "max", "min", "zip"),
    *("bisect_right", "divided", "frexp", "ldexp", "square_root", "progress"),
    *("loop", "sizes", "magnitudes", "shares", "limit", "scale_at", "applied_at", "overflowed_at", "state", "cell"),
    *("step", "size", "magnitude", "zero_share", "finite", "infinity", "largest_number"),
    *("mantissa", "exponent", "fraction"),
}
MADE = re.compile("[ksv][0-9]+")


def require_harmless(source):
    """Words of the list, names with a number, numbers and operators; no text, and no dot that would lead anywhere."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    words = {token.string for token in tokens if token.type == tokenize.NAME}
    assert {word for word in words - WORDS if not MADE.fullmatch(word)} == set()
    assert [token.string for token in tokens if token.type == tokenize.STRING or token.string in (".", "`", "@")] == []


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_policies(name):
    """Names of our own and numbers: each of them can be watched."""
    source, _, _ = _recorded(resolve({"name": name, **PARAMETERS.get(name, {})}))
    require_harmless(source)


@given(st.floats(1.0, 2.0**100), st.integers(1, 2**40), st.floats(1.0009765625, 2.0**30))
def test_numbers_of_a_document(scale, period, multiplier):
    """The numbers of a document stay numbers in the generated code."""
    spec = {"name": "dynamic", "initial_loss_scale": scale, "increment_period": period, "multiplier": multiplier}
    require_harmless(_recorded(resolve(spec))[0])


class Named(LossScale):
    """A policy whose state has whatever name it is given: a file may hold one."""

    def __init__(self, name=HOSTILE):
        self.name = name

    def initial_state(self):
        return {self.name: np.float32(2.0)}

    def scale(self, state, ops):
        return state[self.name]

    def next_state(self, state, report, ops):
        return {self.name: ops.where(report.finite, state[self.name] * ops.float32(2.0), ops.float32(1.0))}

    needs = frozenset({"finite"})


@given(st.text(min_size=1))
def test_names_of_a_state(name):
    """They are not in the source, so no name means anything in it."""
    source, _, _ = _recorded(Named(name))
    require_harmless(source)
    assert source == _recorded(Named("a"))[0]


class Speaking(Named):
    """One whose step computes with text, as a parameter that is not a number would be."""

    def next_state(self, state, report, ops):
        return {self.name: ops.where(report.finite, HOSTILE, state[self.name])}


class Float(float):
    def __repr__(self):
        return HOSTILE


class Disguised(Named):
    """One whose step computes with a number that shows itself as code."""

    def next_state(self, state, report, ops):
        return {self.name: state[self.name] * Float(1.0)}


class Asking(Named):
    """One that wants to know more than there is."""

    needs = frozenset({HOSTILE})


@pytest.mark.parametrize("policy", [Speaking(), Disguised(), Asking()], ids=lambda policy: type(policy).__name__)
def test_what_is_no_number_is_not_written(policy):
    """Such a step is not written out at all; it is taken as it is, by Python."""
    assert generate_loop(policy) is None
