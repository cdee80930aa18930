"""Giving classes names."""

import contextvars
import subprocess
import sys
import threading

import pytest

from scalekeeper import DynamicLossScale, InvalidSpecError, NameTakenError, resolve
from scalekeeper.registry import Registry


class First(DynamicLossScale):
    pass


class Second(DynamicLossScale):
    pass


@pytest.fixture
def registry():
    """A registry of its own for each test, with the built-in names of an empty module."""
    return Registry("loss scale", "scalekeeper.tests", "email", ("fixed", "loss_scale_value"), ("__call__", "update"))


def test_a_name_and_its_aliases(registry):
    """Each of them resolves, and the decorator gives the class back."""
    assert registry.register("mine", aliases=("my", "own/one"))(First) is First
    assert [type(registry.resolve(name)) for name in ("mine", "my", "own/one")] == [First] * 3
    assert registry.names() == ["mine", "my", "own/one"]


def test_a_taken_name_names_both_classes_and_the_first_place(registry):
    """Who has it, from which line of which file, and who wants it."""
    registry.register("mine")(First)
    line = sys._getframe().f_lineno - 1
    with pytest.raises(NameTakenError) as caught:
        registry.register("mine")(Second)
    message = str(caught.value)
    assert f"{__file__}:{line}" in message
    assert "First" in message
    assert "Second" in message
    assert "override=True" in message
    assert type(registry.resolve("mine")) is First


def test_a_taken_alias_registers_nothing(registry):
    """Where one of several names is taken, none is registered."""
    registry.register("mine")(First)
    with pytest.raises(NameTakenError):
        registry.register("other", aliases=("mine",))(Second)
    assert registry.names() == ["mine"]


def test_the_same_class_again_is_fine(registry):
    """As when a module is run twice."""
    registry.register("mine")(First)
    registry.register("mine")(First)
    assert type(registry.resolve("mine")) is First


def test_override_replaces(registry):
    """Only when asked for."""
    registry.register("mine")(First)
    registry.register("mine", override=True)(Second)
    assert type(registry.resolve("mine")) is Second


@pytest.mark.parametrize("name", ["", "1x", "a b", "a:b", "a//b", ".a", "a.", "ä", 5, None])
def test_what_can_not_be_a_name(registry, name):
    """A name can't be taken for a number or for an import path."""
    with pytest.raises(ValueError, match="can't be a name"):
        registry.register(name)


def test_only_a_loss_scale_can_be_registered(registry):
    """A class without the contract is refused by name, and so is what is no class."""
    with pytest.raises(TypeError, match="int is not a loss scale: it has no __call__ and no update"):
        registry.register("mine")(int)
    with pytest.raises(TypeError, match="only a class"):
        registry.register("mine")(First())


def test_a_parameter_called_name_is_refused(registry):
    """In {name: …} it could not be told from the plugin's own name."""

    class Named(First):
        def __init__(self, name="x"):
            pass

    with pytest.raises(TypeError, match="its parameter 'name'"):
        registry.register("mine")(Named)


def test_built_in_names_are_taken_from_the_start():
    """A fresh process that registers "dynamic" before anything used it gets the error, not a broken registry."""
    code = """
import scalekeeper.registry as registry
class Mine:
    def __call__(self): return 1.0
    def update(self, grads): return None, True
try:
    REGISTER
except registry.NameTakenError:
    print(type(registry.resolve("dynamic")).__name__)
"""
    for how in ('registry.register("dynamic")(Mine)', 'registry.temporary_registration("dynamic", Mine).__enter__()'):
        output = subprocess.check_output([sys.executable, "-c", code.replace("REGISTER", how)], text=True)
        assert output.strip() == "DynamicLossScale"


class TestTemporaryRegistration:
    """The usual five, and threads."""

    def test_outside(self, registry):
        """Before the block the name is not there."""
        with pytest.raises(InvalidSpecError):
            registry.resolve("mine")

    def test_inside(self, registry):
        """Inside the block it is, with its aliases."""
        with registry.temporary_registration("mine", First, aliases=("my",)):
            assert type(registry.resolve("my")) is First
            assert registry.names() == ["mine", "my"]

    def test_restored(self, registry):
        """After the block it is as it was before, also where a name was overridden."""
        registry.register("mine")(First)
        with registry.temporary_registration("mine", Second, override=True):
            assert type(registry.resolve("mine")) is Second
        assert type(registry.resolve("mine")) is First

    def test_restored_on_error(self, registry):
        """An exception leaves nothing behind."""
        with pytest.raises(ZeroDivisionError), registry.temporary_registration("mine", First):
            raise ZeroDivisionError
        assert registry.names() == []

    def test_nested(self, registry):
        """The inner block hides the outer one, and gives it back."""
        with registry.temporary_registration("mine", First):
            with registry.temporary_registration("mine", Second, override=True):
                assert type(registry.resolve("mine")) is Second
            assert type(registry.resolve("mine")) is First

    def test_a_taken_name_is_taken_here_too(self, registry):
        """Without override a temporary name can't hide another."""
        registry.register("mine")(First)
        with pytest.raises(NameTakenError), registry.temporary_registration("mine", Second):
            pass

    def test_registering_for_good_inside_a_block_is_for_good(self, registry):
        """Importing a module inside a block must not lose what the module registers."""
        with registry.temporary_registration("mine", First):
            registry.register("other")(Second)
        assert registry.names() == ["other"]

    def test_other_threads_do_not_see_it_unless_they_are_meant_to(self, registry):
        """A thread has its own scope; a copy of the context carries the block's names over."""
        seen = []
        with registry.temporary_registration("mine", First):
            for run in (lambda f: f(), contextvars.copy_context().run):
                thread = threading.Thread(target=run, args=(lambda: seen.append(registry.names()),))
                thread.start()
                thread.join()
        assert seen == [[], ["mine"]]


def test_many_threads_at_once(registry):
    """16 threads register, resolve and scope 50 times each; no one sees another's scope, and nothing is lost."""
    failures = []
    start = threading.Barrier(16)

    def work(number):
        mine = type(f"Mine{number}", (DynamicLossScale,), {})
        try:
            start.wait()
            for turn in range(50):
                registry.register(f"t{number}_{turn}")(mine)
                with registry.temporary_registration("shared", mine):
                    assert type(registry.resolve("shared")) is mine
                    with registry.temporary_registration("shared", First, override=True):
                        assert type(registry.resolve("shared")) is First
                    assert type(registry.resolve(f"t{number}_{turn}")) is mine
                with pytest.raises(InvalidSpecError):
                    registry.resolve("shared")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(registry.names()) == 16 * 50


def test_first_use_by_many_threads_at_once():
    """In a fresh process 16 threads ask first, all at once: each gets the built-in policy."""
    code = """
import threading
import scalekeeper.registry as registry
start, found = threading.Barrier(16), []
def work():
    start.wait()
    found.append(type(registry.resolve("dynamic")).__name__)
threads = [threading.Thread(target=work) for _ in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(found == ["DynamicLossScale"] * 16)
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "True"


def test_resolve_is_the_packages_own_registry():
    """scalekeeper.resolve and its built-in names."""
    assert type(resolve({"name": "static", "loss_scale_value": 2})).__name__ == "FixedLossScale"
