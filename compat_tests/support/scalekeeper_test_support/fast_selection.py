"""Which tests the fast run of the matrix has, and which it leaves to the environments ``-every``.

The rule: in the fast environments of one Keras generation together, every test function runs, with every value of each
of its parameters at least once. Tests with the marker ``slow`` (most of them start processes) run once in all
generations together, those of one file in the same environment, because they share what a fixture has made. Tests with
the marker ``long``, and further combinations of values, are left to the environments ``-every``. The environment
``selection`` checks after a fast run that nothing else was left out.
"""

from typing import Dict, Iterable, List, Mapping, NamedTuple, Sequence, Set, Tuple

import zlib


class CollectedTest(NamedTuple):
    """A collected test.

    Attributes:
        node: Its identifier.
        function: The identifier of its function.
        parameters: The values of its parameters, by name.
        shared_by: The environments among which the values are divided.
        unit: Tests with the same unit run in the same environment; if empty, each value is assigned by itself, and is
            the same for all tests of a file: they share what a fixture has made for that value.

    Tests that no environment of the fast run has are shared by nobody.
    """

    node: str
    function: str
    parameters: Mapping[str, str]
    shared_by: Sequence[str]
    unit: str = ""

    @property
    def targets(self) -> Set[Tuple[str, str]]:
        """What this test covers: the values of its parameters; without parameters, the function itself."""
        return set(self.parameters.items()) or {("", "")}

    def environment_of(self, target: Tuple[str, str]) -> str:
        """Return the environment that a value is assigned to, or an empty string."""
        if not self.shared_by:
            return ""
        words = (self.unit,) if self.unit else (self.function.partition("::")[0], target[1])
        return self.shared_by[_number(*words) % len(self.shared_by)]


def _number(*words: str) -> int:
    """Return a number that depends on nothing but the words, on every Python."""
    return zlib.crc32("\0".join(words).encode())


def fast_selection(tests: Iterable[CollectedTest], environment: str) -> Set[str]:
    """Return the identifiers of the tests that an environment runs in the fast run.

    Each value of a parameter is assigned to one of the environments that share the test. An environment then runs as
    few tests as cover the values assigned to it. Environments choose different combinations where they can.

    >>> names = ("py37-tf20", "py38-tf23")
    >>> tests = [CollectedTest(f"t[{a}-{b}]", "t", {"a": a, "b": b}, names) for a in "xyz" for b in "uvw"]
    >>> chosen = [fast_selection(tests, name) for name in names]
    >>> sorted({value for test in tests if test.node in set.union(*chosen) for value in test.parameters.values()})
    ['u', 'v', 'w', 'x', 'y', 'z']
    """
    functions: Dict[str, List[CollectedTest]] = {}
    for test in tests:
        functions.setdefault(test.function, []).append(test)
    chosen: Set[str] = set()
    for cases in functions.values():
        uncovered = {target for case in cases for target in case.targets if case.environment_of(target) == environment}
        cases = sorted(cases, key=lambda case: _number(case.node, environment))
        while uncovered:
            best = max(cases, key=lambda case: len(case.targets & uncovered))
            uncovered -= best.targets
            chosen.add(best.node)
    return chosen
