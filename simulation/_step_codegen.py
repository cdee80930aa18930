"""A policy's step as one straight loop of Python, for simulations in which every step counts.

A pure step uses nothing but operators and ``ops``. So it can be watched once, with symbols in the place of numbers, as
TensorFlow watches it to make a graph. What was watched is written down as a loop over Python's own numbers, in which
every float operation is rounded to float32 at once: a float64 operation on float32 numbers that is rounded to float32
gives just what float32 arithmetic gives. That is several times as fast as NumPy's scalars, and the same to the bit. A
step that can't be watched, because it branches on a number or calls something else, is taken as it is.
"""

from typing import Any, Callable, Dict, List, Optional

import bisect
import math

import numpy as np

from ..lossscales._numpy_state import HIGHEST_LOG, LOWEST_LOG, OPS
from ..lossscales.contract import LossScale
from ..lossscales.report import Report, State

FLOAT, WHOLE, TRUTH = "float32", "int64", "bool"
_KINDS: Dict[type, str] = {np.float32: FLOAT, np.int64: WHOLE, np.bool_: TRUTH, bool: TRUTH}
_TYPES: Dict[str, Any] = {FLOAT: np.float32, WHOLE: np.int64, TRUTH: np.bool_}
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_STEPS_A_REPORT = 50_000
_BEND = "((fraction * (8388608 - fraction) >> 23) * 87 >> 8)"


class NotWatchedError(Exception):
    """A step does what a symbol can't follow."""


class Symbol:
    """A number that is not known yet: its name in the code, and its type."""

    __array_ufunc__ = None  # NumPy's numbers leave operators to us
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, code: "_Code", name: str, kind: str) -> None:
        self.code, self.name, self.kind = code, name, kind

    def __bool__(self) -> bool:
        raise NotWatchedError("a branch in Python depends on a number")

    def __abs__(self) -> "Symbol":
        return self.code.write(f"abs({self.name})", self.kind)

    def __neg__(self) -> "Symbol":
        return self.code.write(f"-{self.name}", self.kind)


def _operator(sign: str, swapped: bool, compares: bool) -> Callable[[Symbol, Any], Symbol]:
    def operate(self: Symbol, other: Any) -> Symbol:
        code = self.code
        one, two = code.alike(other, self) if swapped else code.alike(self, other)
        if one.kind == TRUTH and sign not in ("==", "!="):
            raise NotWatchedError(f"{sign} between truth values")
        if compares:
            return code.write(f"{one.name} {sign} {two.name}", TRUTH)
        if sign == "/":
            if one.kind != FLOAT:
                raise NotWatchedError("a division of whole numbers")
            return code.rounded(f"divided({one.name}, {two.name})")
        text = f"{one.name} {sign} {two.name}"
        return code.rounded(text) if one.kind == FLOAT else code.write(text, one.kind)

    return operate


for _name, _sign in {"add": "+", "sub": "-", "mul": "*", "truediv": "/"}.items():
    setattr(Symbol, f"__{_name}__", _operator(_sign, False, False))
    setattr(Symbol, f"__r{_name}__", _operator(_sign, True, False))
for _name, _sign in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items():
    setattr(Symbol, f"__{_name}__", _operator(_sign, False, True))


class _Code:
    """Lines of Python, and the constants in them."""

    def __init__(self) -> None:
        self.lines: List[str] = []
        self.constants: Dict[str, Any] = {}
        self._count = 0

    def new_name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def write(self, text: str, kind: str) -> Symbol:
        name = self.new_name()
        self.lines.append(f"{name} = {text}")
        return Symbol(self, name, kind)

    def rounded(self, text: str) -> Symbol:
        """A float operation, as float32."""
        name = self.new_name()
        self.lines.append(f"cell[0] = {text}")
        self.lines.append(f"{name} = cell[0]")
        return Symbol(self, name, FLOAT)

    def constant(self, value: Any) -> str:
        if isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
            return f"({value!r})"
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    def symbol(self, value: Any) -> Symbol:
        """A symbol as it is, a NumPy number as a constant."""
        if isinstance(value, Symbol):
            return value
        kind = _KINDS.get(type(value))
        if kind is None:
            raise NotWatchedError(f"{type(value).__name__} is no type of a state")
        return Symbol(self, self.constant(value if isinstance(value, bool) else value.item()), kind)

    def alike(self, *values: Any) -> List[Symbol]:
        symbols = [self.symbol(value) for value in values]
        if len({symbol.kind for symbol in symbols}) != 1:
            raise NotWatchedError("an operation on different types")
        return symbols


class _WatchingOps:
    """``ops`` that write down what is asked of them."""

    float32, int64 = staticmethod(OPS.float32), staticmethod(OPS.int64)

    def __init__(self, code: _Code) -> None:
        self._code = code

    def where(self, condition: Any, if_true: Any, if_false: Any) -> Symbol:
        (truth,) = self._truths(condition)
        one, two = self._code.alike(if_true, if_false)
        return self._code.write(f"{one.name} if {truth.name} else {two.name}", one.kind)

    def either(self, condition: Any, if_true: Callable[[], State], if_false: Callable[[], State]) -> State:
        (truth,) = self._truths(condition)
        before, results = self._code.lines, []
        for branch in (if_true, if_false):
            self._code.lines = []
            state = {name: self._code.symbol(value) for name, value in branch().items()}
            results.append((self._code.lines, state))
        self._code.lines = before
        (_, one), (_, two) = results
        if {name: symbol.kind for name, symbol in one.items()} != {name: symbol.kind for name, symbol in two.items()}:
            raise NotWatchedError("two branches that give different states")
        found = {name: Symbol(self._code, self._code.new_name(), symbol.kind) for name, symbol in one.items()}
        for head, (lines, state) in zip((f"if {truth.name}:", "else:"), results):
            ends = [f"{found[name].name} = {symbol.name}" for name, symbol in state.items()]
            before += [head, *("    " + line for line in lines + ends or ["pass"])]
        return found

    def minimum(self, one: Any, other: Any) -> Symbol:
        return self._extreme("<", one, other)

    def maximum(self, one: Any, other: Any) -> Symbol:
        return self._extreme(">", one, other)

    def _extreme(self, sign: str, one: Any, other: Any) -> Symbol:
        a, b = self._code.alike(one, other)
        text = f"{b.name} if {b.name} {sign} {a.name} or {b.name} != {b.name} else {a.name}"  # NaN stays
        return self._code.write(text, a.kind)

    def isfinite(self, value: Any) -> Symbol:
        return self._code.write(f"-largest_number <= {self._float(value)} <= largest_number", TRUTH)

    def logical_and(self, one: Any, other: Any) -> Symbol:
        a, b = self._truths(one, other)
        return self._code.write(f"{a.name} and {b.name}", TRUTH)

    def logical_or(self, one: Any, other: Any) -> Symbol:
        a, b = self._truths(one, other)
        return self._code.write(f"{a.name} or {b.name}", TRUTH)

    def logical_not(self, value: Any) -> Symbol:
        (truth,) = self._truths(value)
        return self._code.write(f"not {truth.name}", TRUTH)

    def sqrt(self, value: Any) -> Symbol:
        return self._code.rounded(f"square_root({self._float(value)})")

    def rounded(self, value: Any) -> Any:
        return value

    def as_float32(self, value: Any) -> Symbol:
        return self._code.rounded(self._code.symbol(value).name)

    # these two are NumpyOps' formulas, whose names are not looked up at every step here

    def log2(self, value: Any) -> Symbol:
        self._code.lines.append(f"mantissa, exponent = frexp({self._float(value)})")
        self._code.lines.append("fraction = int(mantissa * 16777216) - 8388608")
        return self._code.rounded(f"((exponent - 1 << 23) + fraction + {_BEND}) * {2.0**-23!r}")

    def exp2(self, value: Any) -> Symbol:
        clamped = f"min(max({self._float(value)}, {LOWEST_LOG!r}), {HIGHEST_LOG!r})"
        self._code.lines.append(f"exponent, fraction = divmod(int({clamped} * 8388608), 8388608)")
        return self._code.rounded(f"ldexp(8388608 + fraction - {_BEND}, exponent - 23)")

    def pick(self, values: Any, index: Any) -> Symbol:
        kinds = {_KINDS.get(type(value)) for value in values}
        (kind,) = kinds
        if kind is None:
            raise NotWatchedError("a choice between other things than numbers")
        name = self._code.constant([value.item() for value in values])
        return self._code.write(f"{name}[{self._code.symbol(index).name}]", kind)

    def count_reached(self, thresholds: Any, value: Any) -> Symbol:
        name = self._code.constant([int(threshold) for threshold in thresholds])
        return self._code.write(f"bisect_right({name}, {self._code.symbol(value).name})", WHOLE)

    def _float(self, value: Any) -> str:
        symbol = self._code.symbol(value)
        if symbol.kind != FLOAT:
            raise NotWatchedError("a float operation on something else")
        return symbol.name

    def _truths(self, *values: Any) -> List[Symbol]:
        symbols = self._code.alike(*values)
        if symbols[0].kind != TRUTH:
            raise NotWatchedError("a logical operation on numbers")
        return symbols


_LOOP = """
def loop(
    sizes, magnitudes, shares, limit, scale_at, applied_at, overflowed_at, progress, state,
    cell=cell, frexp=frexp, infinity=infinity, int=int, ldexp=ldexp  # local names are found faster
):
    {unpack}
    step = 0
    for size, magnitude, zero_share in zip(sizes, magnitudes, shares):
        {scale}
        finite = 0 < {scale_name} < infinity and size * {scale_name} <= limit
        if not finite:
            magnitude = infinity
        {after}
        scale_at[step], applied_at[step], overflowed_at[step] = {scale_name}, {applied}, not finite
        {assign}
        if step % {report} == 0:
            progress(step)
        step += 1
    return [{names}]
"""


def straight_loop(policy: LossScale) -> Optional[Callable[..., Dict[str, Any]]]:
    """The loop over a policy's steps, or None if its step can't be watched.

    It takes sizes, reported magnitudes and shares of zeros as Python's numbers, the limit, where to put scale, applied
    and overflowed, whom to tell of progress, and the first state; and returns the last.
    """
    try:
        source, constants, kinds = _watched(policy)
    except Exception:  # the step as it is will do, and says what is wrong if something is
        return None
    number: Any = np.zeros(1, np.float32)
    cell = memoryview(number)  # what is put in comes out as float32
    scope: Dict[str, Any] = {
        **constants,
        "bisect_right": bisect.bisect_right,
        "cell": cell,
        "divided": _divided,
        "frexp": math.frexp,
        "infinity": math.inf,
        "largest_number": _FLOAT32_MAX,
        "ldexp": math.ldexp,
        "square_root": _square_root,
    }
    exec(source, scope)  # written above, from nothing but names of our own
    loop = scope["loop"]

    def run(*arguments: Any) -> Dict[str, Any]:
        *others, state = arguments
        last = loop(*others, [value.item() for value in state.values()])
        return {name: _TYPES[kind](value) for (name, kind), value in zip(kinds.items(), last)}

    return run


def _watched(policy: LossScale) -> Any:
    code, initial = _Code(), policy.initial_state()
    ops: Any = _WatchingOps(code)
    kinds = {name: _KINDS[type(value)] for name, value in initial.items()}
    state = {name: Symbol(code, f"s{place}", kind) for place, (name, kind) in enumerate(kinds.items())}
    scale = code.symbol(policy.scale(state, ops))
    scale_lines, code.lines = code.lines, []

    facts = {"finite": TRUTH, "largest_magnitude": FLOAT, "zero_share": FLOAT}
    names = {"largest_magnitude": "magnitude"}
    report = Report(**{name: Symbol(code, names.get(name, name), facts[name]) for name in policy.needs})
    following = policy.next_state(state, report, ops)
    applied = code.symbol(policy.should_apply(state, report, ops))
    after = {name: code.symbol(following[name]) for name in following}
    if {name: symbol.kind for name, symbol in after.items()} != kinds or (scale.kind, applied.kind) != (FLOAT, TRUTH):
        raise NotWatchedError("a step that changes names or types")
    own = ", ".join(symbol.name for symbol in state.values())
    source = _LOOP.format(
        unpack=f"[{own}] = state" if own else "pass",
        scale="\n        ".join(scale_lines) or "pass",
        scale_name=scale.name,
        after="\n        ".join(code.lines) or "pass",
        applied=applied.name,
        assign=f"[{own}] = [{', '.join(after[name].name for name in state)}]" if own else "pass",
        names=own,
        report=_STEPS_A_REPORT,
    )
    return source, code.constants, kinds


def _divided(one: float, two: float) -> float:
    """As IEEE 754 has it, where Python raises an error."""
    if two:
        return one / two
    return math.nan if not one or one != one else math.copysign(math.inf, one) * math.copysign(1.0, two)


def _square_root(value: float) -> float:
    return math.sqrt(value) if value >= 0 else math.nan
