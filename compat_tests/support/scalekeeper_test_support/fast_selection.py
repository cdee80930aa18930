"""Which tests the fast run of the matrix has, and which it leaves to the environments ``-every``.

The rule: in the fast environments of one Keras generation together, every test function runs, with at least one value
of each of its parameters; the other values are divided among the generations. The values of legacy optimizers are not
divided, because only one generation has them. Tests with the marker ``whole`` run with every value in each generation.
Tests with the marker ``slow`` (most of them start processes) run once in all generations together, those of one file in
the same environment, because they share what a fixture has made. Tests with the marker ``long``, further combinations
of values, and other values that only some generations have, are left to the environments ``-every``. The environment
``selection`` checks after a fast run that nothing else was left out.
"""

from typing import Dict, Iterable, List, Mapping, NamedTuple, Sequence, Set, Tuple

import zlib

# how many values of a parameter each generation runs at least
FEWEST_VALUES = 1
# what the values begin with that only one generation has
UNDIVIDED = "legacy"


class CollectedTest(NamedTuple):
    """A collected test.

    Attributes:
        node: Its identifier.
        function: The identifier of its function.
        parameters: The values of its parameters, by name.
        shared_by: The environments among which the values are divided.
        unit: Tests with the same unit run in the same environment; if empty, each value is assigned by itself, and is
            the same for all tests of a file: they share what a fixture has made for that value.
        share: The number of the generation, from 0, and how many generations there are that divide the values.

    Tests that no environment of the fast run has are shared by nobody.
    """

    node: str
    function: str
    parameters: Mapping[str, str]
    shared_by: Sequence[str]
    unit: str = ""
    share: Tuple[int, int] = (0, 1)

    @property
    def targets(self) -> Set[Tuple[str, str]]:
        """Return what this test covers: the values of its parameters; without parameters, the function itself."""
        return set(self.parameters.items()) or {("", "")}

    def environment_of(self, target: Tuple[str, str]) -> str:
        """Return the environment that a value is assigned to, or an empty string."""
        if not self.shared_by:
            return ""
        words = (self.unit,) if self.unit else (self.function.partition("::")[0], target[1])
        return self.shared_by[_number(*words) % len(self.shared_by)]


def cases_by_function(tests: Iterable[CollectedTest]) -> Iterable[Sequence[CollectedTest]]:
    """Return the cases of each function; those with the marker ``slow``, which others share, by themselves."""
    found: Dict[Tuple[str, Tuple[str, ...]], List[CollectedTest]] = {}
    for test in tests:
        found.setdefault((test.function, tuple(test.shared_by)), []).append(test)
    return found.values()


def values_of_generation(cases: Sequence[CollectedTest]) -> Set[Tuple[str, str]]:
    """Return what the environments of a generation cover of one function: at least one value of each parameter.

    >>> cases = [CollectedTest(f"t[{a}]", "t", {"a": a}, ("py310-tf210",), share=(1, 4)) for a in "abcdefgh"]
    >>> sorted(value for _, value in values_of_generation(cases))
    ['e', 'g']
    """
    number, generations = cases[0].share
    values: Dict[str, Set[str]] = {}
    for case in cases:
        for name, value in case.targets:
            values.setdefault(name, set()).add(value)
    found = set()
    for name, all_values in values.items():
        order = sorted(all_values, key=lambda value: _number(value, str(number)))
        own = [
            value
            for value in order
            if value.startswith(UNDIVIDED) or _number(cases[0].function, value) % generations == number
        ]
        others = [value for value in order if value not in own]
        found |= {(name, value) for value in (*own, *others[: max(0, FEWEST_VALUES - len(own))])}
    return found


def _number(*words: str) -> int:
    """Return a number that depends on nothing but the words, on every Python."""
    return zlib.crc32("\0".join(words).encode())


def fast_selection(tests: Iterable[CollectedTest], environment: str) -> Set[str]:
    """Return the identifiers of the tests that an environment runs in the fast run.

    Each value that the generation runs is assigned to one of the environments that share the test. An environment then
    runs as few tests as cover the values assigned to it. Environments choose different combinations where they can.

    >>> names = ("py37-tf20", "py38-tf23")
    >>> tests = [CollectedTest(f"t[{a}-{b}]", "t", {"a": a, "b": b}, names) for a in "xyz" for b in "uvw"]
    >>> chosen = [fast_selection(tests, name) for name in names]
    >>> sorted({value for test in tests if test.node in set.union(*chosen) for value in test.parameters.values()})
    ['u', 'v', 'w', 'x', 'y', 'z']
    """
    chosen: Set[str] = set()
    for cases in cases_by_function(tests):
        wanted = values_of_generation(cases)
        targets = [(case, target) for case in cases for target in case.targets & wanted]
        uncovered = {target for case, target in targets if case.environment_of(target) == environment}
        cases = sorted(cases, key=lambda case: _number(case.node, environment))
        while uncovered:
            best = max(cases, key=lambda case: len(case.targets & uncovered))
            uncovered -= best.targets
            chosen.add(best.node)
    return chosen
