"""Generation of a Python loop from a policy's pure step, which makes simulations several times faster.

A pure step uses only operators and ``ops``, so one call with symbols instead of numbers records it, as TensorFlow
records a graph. The record becomes a loop over Python numbers that rounds the result of every float operation to
float32. A float64 operation on float32 numbers, rounded to float32, equals the float32 operation, so the results are
the same to the bit. A step that can't be recorded, because it branches on a number or calls other functions, has no
generated loop.
"""

from typing import Any, Callable, Dict, List, Optional

import bisect
import math

import numpy as np

from ..lossscales._numpy_state import HIGHEST_LOG, LOWEST_LOG, OPS
from ..lossscales.contract import LossScale
from ..lossscales.report import Report, State

FLOAT, INTEGER, BOOLEAN = "float32", "int64", "bool"
_KINDS: Dict[type, str] = {np.float32: FLOAT, np.int64: INTEGER, np.bool_: BOOLEAN, bool: BOOLEAN}
_TYPES: Dict[str, Any] = {FLOAT: np.float32, INTEGER: np.int64, BOOLEAN: np.bool_}
_FLOAT32_MAX = float(np.finfo(np.float32).max)
PROGRESS_INTERVAL = 50_000  # steps
_LOG2_CORRECTION = "((fraction * (8388608 - fraction) >> 23) * 87 >> 8)"


class UnsupportedStepError(Exception):
    """A step can't be recorded."""


class Symbol:
    """A number that is not known yet: its variable in the generated code, and its type."""

    __array_ufunc__ = None  # NumPy scalars call the reflected operators of this class
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, code: "_Code", name: str, kind: str) -> None:
        self.code, self.name, self.kind = code, name, kind

    def __bool__(self) -> bool:
        raise UnsupportedStepError("a Python branch depends on a number")

    def __abs__(self) -> "Symbol":
        return self.code.write(f"abs({self.name})", self.kind)

    def __neg__(self) -> "Symbol":
        return self.code.write(f"-{self.name}", self.kind)


def _operator(sign: str, swapped: bool, compares: bool) -> Callable[[Symbol, Any], Symbol]:
    def operate(self: Symbol, other: Any) -> Symbol:
        code = self.code
        one, two = code.same_type(other, self) if swapped else code.same_type(self, other)
        if one.kind == BOOLEAN and sign not in ("==", "!="):
            raise UnsupportedStepError(f"{sign} between booleans")
        if compares:
            return code.write(f"{one.name} {sign} {two.name}", BOOLEAN)
        if sign == "/":
            if one.kind != FLOAT:
                raise UnsupportedStepError("a division of integers")
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
    """The generated lines and the constants that they use."""

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
        """Append a float operation whose result is rounded to float32."""
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
        """Return a symbol unchanged, and a NumPy scalar as a constant."""
        if isinstance(value, Symbol):
            return value
        kind = _KINDS.get(type(value))
        if kind is None:
            raise UnsupportedStepError(f"{type(value).__name__} can't be in a state")
        return Symbol(self, self.constant(value if isinstance(value, bool) else value.item()), kind)

    def same_type(self, *values: Any) -> List[Symbol]:
        """Return the values as symbols, or raise an error if their types differ."""
        symbols = [self.symbol(value) for value in values]
        if len({symbol.kind for symbol in symbols}) != 1:
            raise UnsupportedStepError("an operation on different types")
        return symbols


class _RecordingOps:
    """``ops`` that append lines to the generated code."""

    float32, int64 = staticmethod(OPS.float32), staticmethod(OPS.int64)

    def __init__(self, code: _Code) -> None:
        self._code = code

    def where(self, condition: Any, if_true: Any, if_false: Any) -> Symbol:
        (boolean,) = self._booleans(condition)
        one, two = self._code.same_type(if_true, if_false)
        return self._code.write(f"{one.name} if {boolean.name} else {two.name}", one.kind)

    def either(self, condition: Any, if_true: Callable[[], State], if_false: Callable[[], State]) -> State:
        (boolean,) = self._booleans(condition)
        before, results = self._code.lines, []
        for branch in (if_true, if_false):
            self._code.lines = []
            state = {name: self._code.symbol(value) for name, value in branch().items()}
            results.append((self._code.lines, state))
        self._code.lines = before
        (_, one), (_, two) = results
        if {name: symbol.kind for name, symbol in one.items()} != {name: symbol.kind for name, symbol in two.items()}:
            raise UnsupportedStepError("two branches with different states")
        found = {name: Symbol(self._code, self._code.new_name(), symbol.kind) for name, symbol in one.items()}
        for head, (lines, state) in zip((f"if {boolean.name}:", "else:"), results):
            ends = [f"{found[name].name} = {symbol.name}" for name, symbol in state.items()]
            before += [head, *("    " + line for line in lines + ends or ["pass"])]
        return found

    def minimum(self, one: Any, other: Any) -> Symbol:
        return self._extreme("<", one, other)

    def maximum(self, one: Any, other: Any) -> Symbol:
        return self._extreme(">", one, other)

    def _extreme(self, sign: str, one: Any, other: Any) -> Symbol:
        a, b = self._code.same_type(one, other)
        text = f"{b.name} if {b.name} {sign} {a.name} or {b.name} != {b.name} else {a.name}"  # propagates NaN
        return self._code.write(text, a.kind)

    def isfinite(self, value: Any) -> Symbol:
        return self._code.write(f"-largest_number <= {self._float(value)} <= largest_number", BOOLEAN)

    def logical_and(self, one: Any, other: Any) -> Symbol:
        a, b = self._booleans(one, other)
        return self._code.write(f"{a.name} and {b.name}", BOOLEAN)

    def logical_or(self, one: Any, other: Any) -> Symbol:
        a, b = self._booleans(one, other)
        return self._code.write(f"{a.name} or {b.name}", BOOLEAN)

    def logical_not(self, value: Any) -> Symbol:
        (boolean,) = self._booleans(value)
        return self._code.write(f"not {boolean.name}", BOOLEAN)

    def sqrt(self, value: Any) -> Symbol:
        return self._code.rounded(f"square_root({self._float(value)})")

    def rounded(self, value: Any) -> Any:
        return value

    def as_float32(self, value: Any) -> Symbol:
        return self._code.rounded(self._code.symbol(value).name)

    # these two write out the formulas of NumpyOps, which saves a call at every step

    def log2(self, value: Any) -> Symbol:
        self._code.lines.append(f"mantissa, exponent = frexp({self._float(value)})")
        self._code.lines.append("fraction = int(mantissa * 16777216) - 8388608")
        return self._code.rounded(f"((exponent - 1 << 23) + fraction + {_LOG2_CORRECTION}) * {2.0**-23!r}")

    def exp2(self, value: Any) -> Symbol:
        clamped = f"min(max({self._float(value)}, {LOWEST_LOG!r}), {HIGHEST_LOG!r})"
        self._code.lines.append(f"exponent, fraction = divmod(int({clamped} * 8388608), 8388608)")
        return self._code.rounded(f"ldexp(8388608 + fraction - {_LOG2_CORRECTION}, exponent - 23)")

    def pick(self, values: Any, index: Any) -> Symbol:
        kinds = {_KINDS.get(type(value)) for value in values}
        (kind,) = kinds
        if kind is None:
            raise UnsupportedStepError("pick from values that are not numbers")
        name = self._code.constant([value.item() for value in values])
        return self._code.write(f"{name}[{self._code.symbol(index).name}]", kind)

    def count_reached(self, thresholds: Any, value: Any) -> Symbol:
        name = self._code.constant([int(threshold) for threshold in thresholds])
        return self._code.write(f"bisect_right({name}, {self._code.symbol(value).name})", INTEGER)

    def _float(self, value: Any) -> str:
        symbol = self._code.symbol(value)
        if symbol.kind != FLOAT:
            raise UnsupportedStepError("a float operation on another type")
        return symbol.name

    def _booleans(self, *values: Any) -> List[Symbol]:
        symbols = self._code.same_type(*values)
        if symbols[0].kind != BOOLEAN:
            raise UnsupportedStepError("a logical operation on numbers")
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


def generate_loop(policy: LossScale) -> Optional[Callable[..., Dict[str, Any]]]:
    """Return a loop over the steps of a policy, or None if its step can't be recorded.

    The loop takes the sizes, reported magnitudes and zero shares as Python numbers, the limit, the three outputs
    (scale, applied, overflowed), the progress callback and the initial state. It returns the final state.
    """
    try:
        source, constants, kinds = _recorded(policy)
    except Exception:  # calling the step itself works, or raises an error that explains the cause
        return None
    number: Any = np.zeros(1, np.float32)
    cell = memoryview(number)  # assigning to it rounds to float32
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
    exec(source, scope)  # the source holds only generated names, operators and numbers
    loop = scope["loop"]

    def run(*arguments: Any) -> Dict[str, Any]:
        *others, state = arguments
        last = loop(*others, [value.item() for value in state.values()])
        return {name: _TYPES[kind](value) for (name, kind), value in zip(kinds.items(), last)}

    return run


def _recorded(policy: LossScale) -> Any:
    """Return the source of the loop, its constants, and the types of the state."""
    code, initial = _Code(), policy.initial_state()
    ops: Any = _RecordingOps(code)
    kinds = {name: _KINDS[type(value)] for name, value in initial.items()}
    state = {name: Symbol(code, f"s{index}", kind) for index, (name, kind) in enumerate(kinds.items())}
    scale = code.symbol(policy.scale(state, ops))
    scale_lines, code.lines = code.lines, []

    facts = {"finite": BOOLEAN, "largest_magnitude": FLOAT, "zero_share": FLOAT}
    names = {"largest_magnitude": "magnitude"}
    report = Report(**{name: Symbol(code, names.get(name, name), facts[name]) for name in policy.needs})
    following = policy.next_state(state, report, ops)
    applied = code.symbol(policy.should_apply(state, report, ops))
    after = {name: code.symbol(following[name]) for name in following}
    if {name: symbol.kind for name, symbol in after.items()} != kinds or (scale.kind, applied.kind) != (FLOAT, BOOLEAN):
        raise UnsupportedStepError("a step that changes the names or types of the state")
    own = ", ".join(symbol.name for symbol in state.values())
    source = _LOOP.format(
        unpack=f"[{own}] = state" if own else "pass",
        scale="\n        ".join(scale_lines) or "pass",
        scale_name=scale.name,
        after="\n        ".join(code.lines) or "pass",
        applied=applied.name,
        assign=f"[{own}] = [{', '.join(after[name].name for name in state)}]" if own else "pass",
        names=own,
        report=PROGRESS_INTERVAL,
    )
    return source, code.constants, kinds


def _divided(one: float, two: float) -> float:
    """Divide by the rules of IEEE 754, without an error for 0."""
    if two:
        return one / two
    return math.nan if not one or one != one else math.copysign(math.inf, one) * math.copysign(1.0, two)


def _square_root(value: float) -> float:
    return math.sqrt(value) if value >= 0 else math.nan
