"""Giving classes names."""

import contextvars
import email
import subprocess
import sys
import threading
import types

import pytest

from scalekeeper import DynamicLossScale, InvalidSpecError, NameTakenError, resolve
from scalekeeper.registry import Registry, loss_scales
from scalekeeper.registry._entry_points import Announcement


class First(DynamicLossScale):
    pass


class Second(DynamicLossScale):
    pass


@pytest.fixture
def registry():
    """A registry of its own for each test, with the built-in names of an empty module."""
    return Registry(
        "loss scale", "scalekeeper.tests", lambda: email, ("fixed", "loss_scale_value"), ("__call__", "update")
    )


def test_a_name_and_its_aliases(registry):
    """Each of them resolves, and the decorator gives the class back."""
    assert registry.register("mine", aliases=("my", "own/one"))(First) is First
    assert [type(registry.resolve(name)) for name in ("mine", "my", "own/one")] == [First] * 3
    assert registry.names() == ["mine", "my", "own/one"]


def test_a_taken_name_names_both_classes_and_the_first_place(registry):
    """The error names the class that has the name, with its file and line, and the class that wants it."""
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


class TestPresets:
    """A name with other defaults for a class that is there already."""

    def test_what_it_makes_is_of_the_class_itself(self, registry):
        """With the preset's defaults and the caller's values, and nothing that depends on the preset's name."""
        registry.register_preset("quick", First, aliases=("fast",), increment_period=10.0, minimum=4)
        made = registry.resolve({"name": "fast", "minimum": 8})
        assert type(made) is First
        assert type(made.params) is First.Params
        assert made.get_config() == First(increment_period=10, minimum=8).get_config()
        assert registry.plugin("quick").defaults()["increment_period"] == 10

    def test_its_parameters_are_checked_like_those_of_the_class(self, registry):
        """A value that the class refuses is refused, and so is an unknown name, in the preset's name."""
        registry.register_preset("quick", First, increment_period=10)
        for values in ({"increment_period": 0}, {"increment_period": "10"}, {"minimum": 2.0**20}, {"period": 3}):
            with pytest.raises(InvalidSpecError):
                registry.resolve(dict(values, name="quick"))
        with pytest.raises(InvalidSpecError, match="unknown parameter 'period' of quick"):
            registry.resolve({"name": "quick", "period": 3})

    @pytest.mark.parametrize("defaults", [{"period": 1}, {"increment_period": 0}, {"maximum": 4.0}])
    def test_bad_defaults_are_refused_at_once(self, registry, defaults):
        """When it is registered, not when it is first used; and nothing is registered."""
        with pytest.raises(InvalidSpecError, match=next(iter(defaults)) if "maximum" not in defaults else "initial"):
            registry.register_preset("quick", First, **defaults)
        assert registry.names() == []

    def test_the_class_does_not_become_its_preset(self, registry):
        """Asked for by class, it has its own defaults, in whatever order they were registered."""
        registry.register_preset("quick", First, increment_period=10)
        assert registry.resolve(First).params.increment_period == 2000
        registry.register("first")(First)
        assert registry.plugin_of(First).name == "first"

    def test_a_preset_of_a_name_and_of_a_preset(self, registry):
        """The last has the defaults of both, its own first."""
        registry.register("first")(First)
        registry.register_preset("quick", "first", increment_period=10, minimum=2)
        registry.register_preset("quicker", "quick", increment_period=5)
        params = registry.resolve("quicker").params
        assert (params.increment_period, params.minimum) == (5, 2.0)

    def test_a_taken_name(self, registry):
        """The same preset again is fine; another one of the same class is not, nor is the class itself."""
        registry.register_preset("quick", First, increment_period=10)
        registry.register_preset("quick", First, increment_period=10)
        with pytest.raises(NameTakenError, match="a preset of .*First"):
            registry.register_preset("quick", First, increment_period=11)
        with pytest.raises(NameTakenError):
            registry.register("quick")(First)
        registry.register_preset("quick", First, increment_period=11, override=True)
        assert registry.resolve("quick").params.increment_period == 11

    def test_a_class_with_a_constructor_of_its_own(self, registry):
        """Also one that needs an argument, which the preset may give or leave open."""

        class Own(First):
            def __init__(self, start: float, by: float = 2.0):
                self.values = (start, by)

        registry.register_preset("halves", Own, by=0.5)
        registry.register_preset("all", Own, by=0.5, start=3.0)
        assert registry.resolve({"name": "halves", "start": 1.0}).values == (1.0, 0.5)
        assert registry.resolve("all").values == (3.0, 0.5)
        assert (registry.plugin("halves").needs_nothing, registry.plugin("all").needs_nothing) == (False, True)

    def test_where_it_comes_from_and_what_it_says(self, registry):
        """The listing names the line that registered it; without a description it has that of the class."""
        line = sys._getframe().f_lineno + 1
        registry.register_preset("quick", DynamicLossScale, description="In a hurry.", increment_period=10)
        registry.register_preset("plain", DynamicLossScale)
        rows = {row.name: row for row in registry.listing()}
        assert (rows["quick"].origin, rows["quick"].plugin.description) == (f"{__file__}:{line}", "In a hurry.")
        assert rows["plain"].plugin.description == DynamicLossScale.__doc__.partition("\n")[0]


def test_only_a_loss_scale_can_be_registered(registry):
    """A class without the contract is refused by name, and so is what is not a class."""
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
import types
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


def test_a_registered_class_is_found_without_entry_points(monkeypatch):
    """Reading the entry points of every installed distribution takes long, and most files name a built-in class."""
    monkeypatch.setattr(loss_scales, "_announcements", lambda: pytest.fail("the entry points were read"))
    assert loss_scales.class_named("DynamicLossScale") is DynamicLossScale


def test_a_class_is_found_by_an_entry_point(monkeypatch):
    """A file may name the class of an installed plugin that nobody has imported."""

    class Theirs(DynamicLossScale):
        pass

    entry_point = types.SimpleNamespace(load=lambda: Theirs)
    announcements = {"theirs": [Announcement("theirs", "package 1.0", entry_point)]}
    monkeypatch.setattr(loss_scales, "_names", loss_scales._names)  # restored at the end
    monkeypatch.setattr(loss_scales, "_announcements", lambda: announcements)
    assert loss_scales.class_named("Theirs") is Theirs
    assert loss_scales.class_named("Nobodys") is None
