"""The registry: names for policy classes, and objects from specs."""

from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
    Type,
    TypeVar,
    Union,
)

import contextlib
import contextvars
import inspect
import numbers
import os
import re
import sys
import threading
import types

from pydantic import BaseModel

from .._built_in_plugins import loaders
from ._argument_checks import described, is_optimizer
from ._entry_points import Announcement, announced
from ._import_paths import AllowList
from ._number_texts import as_number
from ._parameters import checked, parameter_model, with_defaults
from .errors import (
    ArgumentError,
    ArgumentTypeError,
    InvalidSpecError,
    InvalidSpecTypeError,
    NameTakenError,
    PluginLoadError,
    Problem,
    ScalekeeperError,
    shown,
    unknown,
)

Class = TypeVar("Class", bound=type)

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:[./-][A-Za-z0-9_]+)*")
_REQUIRED = "(required)"


class Plugin:
    """A registered class with its parameter model. A preset has other defaults than the class."""

    def __init__(
        self,
        name: str,
        cls: type,
        aliases: Tuple[str, ...],
        origin: str,
        preset: Optional[Mapping[str, Any]] = None,
        description: str = "",
    ) -> None:
        self.name = name
        self.cls = cls
        self.aliases = aliases
        self.origin = origin
        self.preset = preset
        self.description = description or (cls.__doc__ or "").strip().partition("\n")[0]
        self._own_parameters = parameter_model(cls)
        self.parameters: Type[BaseModel] = (
            self._own_parameters if preset is None else with_defaults(self._own_parameters, preset, name)
        )
        if "name" in self.parameters.model_fields:
            raise ArgumentTypeError(
                f"{_label(cls)} can't be registered: its parameter 'name' would hide the name of the plugin in a "
                "spec; rename the parameter"
            )
        self._from_params: Optional[Callable[[BaseModel], Any]] = getattr(cls, "from_params", None)

    def make(self, values: Mapping[str, Any]) -> Any:
        """Check the values and return an object with them."""
        params = checked(self.parameters, values, self.name)
        if self.preset is not None:
            params = self._own_parameters.model_validate(dict(params))
        try:
            return self._from_params(params) if self._from_params else self.cls(**dict(params))
        except Exception as error:
            if isinstance(error, ScalekeeperError) and not isinstance(error, (ArgumentError, ArgumentTypeError)):
                raise
            message = f"{self.name} refused its parameters: {type(error).__name__}: {error}"
            raise InvalidSpecError([Problem((), message, "refused")]) from error

    def defaults(self) -> Dict[str, Any]:
        """Return parameter → default; ``"(required)"`` if it has none."""
        fields = self.parameters.model_fields
        return {
            name: _REQUIRED if field.is_required() else field.get_default(call_default_factory=True)
            for name, field in fields.items()
        }

    @property
    def label(self) -> str:
        """The class, or that it is a preset of a class, for messages."""
        return _label(self.cls) if self.preset is None else f"a preset of {_label(self.cls)}"

    def is_same_as(self, other: "Plugin") -> bool:
        """Return whether both make equal objects from a spec."""
        return self.cls is other.cls and self.preset == other.preset

    @property
    def needs_nothing(self) -> bool:
        """Whether the name alone is a valid spec."""
        return not any(field.is_required() for field in self.parameters.model_fields.values())


class Listing(NamedTuple):
    """A row of :meth:`Registry.listing`. If the plugin can't be loaded, ``plugin`` is None and ``error`` the reason."""

    name: str
    origin: str
    plugin: Optional[Plugin]
    error: Optional[str]


class Registry:
    """The plugins of one kind: names for classes, and objects from specs.

    :data:`loss_scales` is the registry of policies. Reading takes no lock, and no import happens under the lock: the
    imported module could register a class and wait for the lock.

    Args:
        kind: The noun for a plugin in messages.
        group: The group of entry points.
        load_built_in: Imports and returns the package that registers the built-in plugins. It is called on first use.
        number: The name and the parameter that a number in place of a spec stands for.
        methods: The methods that every plugin must have.

    Example:
        >>> from scalekeeper.registry import loss_scales
        >>> loss_scales.plugin("dynamic").cls.__name__
        'DynamicLossScale'
    """

    def __init__(
        self,
        kind: str,
        group: str,
        load_built_in: Callable[[], types.ModuleType],
        number: Tuple[str, str],
        methods: Tuple[str, ...],
    ) -> None:
        self.kind = kind
        self.group = group
        # called before every lookup, because the import system waits for an import in another thread
        self._load_built_in = load_built_in
        self.number = number
        self._methods = methods
        self._lock = threading.Lock()
        self._names: Mapping[str, Plugin] = {}
        self._announced: Optional[Dict[str, List[Announcement]]] = None
        self._scope: contextvars.ContextVar[Mapping[str, Plugin]] = contextvars.ContextVar(
            group, default=types.MappingProxyType({})
        )

    # Registering

    def register(
        self, name: str, *, aliases: Iterable[str] = (), override: bool = False, description: str = ""
    ) -> Callable[[Class], Class]:
        """Return a decorator that registers a class.

        Args:
            name: The name in specs and documents.
            aliases: Other names for it.
            override: Whether to replace a class that has one of the names.
            description: The purpose of the policy, for ``scalekeeper list``. Default: the first line of its docstring.

        Returns:
            The decorator, which returns the class unchanged.

        Raises:
            NameTakenError: Another class has one of the names.
            ArgumentError: A name is not valid.
            ArgumentTypeError: The object is not a class, or not a policy.

        Example:
            >>> from scalekeeper import DynamicLossScale, register, resolve
            >>> @register("cautious")
            ... class CautiousLossScale(DynamicLossScale):
            ...     class Params(DynamicLossScale.Params):
            ...         initial_loss_scale: float = 128.0
            >>> float(resolve("cautious")())
            128.0
        """
        names = self._valid_names(name, aliases)
        origin = _caller()

        def decorate(cls: Class) -> Class:
            plugin = self._new_plugin(names, cls, origin, description)
            with self._lock:
                self._names = self._with(self._names, names, plugin, override)
            return cls

        return decorate

    def register_preset(
        self,
        name: str,
        cls: Union[type, str],
        *,
        description: str = "",
        aliases: Iterable[str] = (),
        override: bool = False,
        **defaults: Any,
    ) -> None:
        """Register a name for a class, or a registered name, with other defaults.

        Objects of a preset are objects of the class, so saved files do not depend on the name of the preset.

        Args:
            name: The name of the preset.
            cls: The class, or its name.
            description: The purpose of the preset, for ``scalekeeper list``.
            aliases: Other names for the preset.
            override: Whether to replace a class that has one of the names.
            **defaults: The other defaults.

        Raises:
            NameTakenError: Another class has one of the names.
            InvalidSpecError: A default is not valid.

        Example:
            >>> from scalekeeper import register_preset, resolve
            >>> register_preset("dynamic/slow", "dynamic", increment_period=10000)
            >>> resolve({"name": "dynamic/slow", "initial_loss_scale": 64}).params.increment_period
            10000
        """
        names = self._valid_names(name, aliases)
        origin = _caller()
        self._load_built_in()
        if isinstance(cls, str):
            plugin = self.plugin(cls)
            cls, defaults = plugin.cls, {**(plugin.preset or {}), **defaults}
        self._require_contract(cls)
        plugin = Plugin(names[0], cls, names[1:], origin, defaults, description)
        with self._lock:
            self._names = self._with(self._names, names, plugin, override)

    @contextlib.contextmanager
    def temporary_registration(
        self, name: str, cls: type, *, aliases: Iterable[str] = (), override: bool = False
    ) -> Iterator[None]:
        """Register a class in a ``with`` block, for the current thread or asynchronous task.

        A thread that starts in the block does not see the name, unless it runs in a copy of the context
        (``contextvars.copy_context().run``).

        Args:
            name: The name in specs and documents.
            cls: The class.
            aliases: Other names for it.
            override: Whether to replace a class that has one of the names.

        Returns:
            The context manager.

        Raises:
            NameTakenError: Another class has one of the names.
            ArgumentError: A name is not valid.
            ArgumentTypeError: The object is not a class, or not a policy.

        Example:
            >>> import scalekeeper
            >>> class Mine(scalekeeper.FixedLossScale):
            ...     pass
            >>> with scalekeeper.temporary_registration("mine", Mine):
            ...     scalekeeper.resolve({"name": "mine", "loss_scale_value": 8.0})
            Mine(8.0)
        """
        names = self._valid_names(name, aliases)
        plugin = self._new_plugin(names, cls, _caller())
        token = self._scope.set(self._with(self._scope.get(), names, plugin, override))
        try:
            yield
        finally:
            self._scope.reset(token)

    def _new_plugin(self, names: Tuple[str, ...], cls: type, origin: str, description: str = "") -> Plugin:
        self._load_built_in()  # built-in names are taken even before their first use
        self._require_contract(cls)
        return Plugin(names[0], cls, names[1:], origin, description=description)

    def _with(
        self, table: Mapping[str, Plugin], names: Tuple[str, ...], plugin: Plugin, override: bool
    ) -> Mapping[str, Plugin]:
        """Return a copy of the table with the plugin. Readers keep the old table."""
        merged = dict(table)
        for name in names:
            first = self._scope.get().get(name) or self._names.get(name)
            if first is not None and not first.is_same_as(plugin) and not override:
                raise NameTakenError(
                    f"the {self.kind} name {name!r} is taken\n"
                    f"  by:        {first.label} ({first.origin})\n"
                    f"  wanted by: {plugin.label} ({plugin.origin})\n"
                    "Choose another name, or pass override=True to replace the first one."
                )
            merged[name] = plugin
        return merged

    @staticmethod
    def _valid_names(name: str, aliases: Iterable[str]) -> Tuple[str, ...]:
        if inspect.isclass(name):
            raise ArgumentTypeError(f"register expects a name, got the class {name.__name__}: write @register('name')")
        if not isinstance(aliases, (str, Iterable)):
            raise ArgumentTypeError(f"aliases must be names, such as ('short',), got {shown(aliases)}")
        names = (name,) + ((aliases,) if isinstance(aliases, str) else tuple(aliases))
        for each in names:
            if not isinstance(each, str) or not _NAME.fullmatch(each):
                raise ArgumentError(
                    f"{shown(each)} can't be a name: "
                    "it starts with a letter and holds letters, digits, '_', and single '.', '/' or '-' between them"
                )
        return names

    def _require_contract(self, cls: Any) -> None:
        if not inspect.isclass(cls):
            raise ArgumentTypeError(f"only a class can be a {self.kind}, not {shown(cls)}")
        missing = [method for method in self._methods if not _has_method(cls, method)]
        if missing:
            raise ArgumentTypeError(
                "{} is not a {}: it has no {}. Derive it from scalekeeper.LossScale, or write the method".format(
                    _label(cls), self.kind, " and no ".join(missing)
                )
            )

    # Looking up

    def plugin(self, name: str, allow: Iterable[str] = ()) -> Plugin:
        """Return the plugin of a registered name, an entry point, or an allowed import path.

        Args:
            name: The name.
            allow: Allowed import paths.

        Raises:
            InvalidSpecError: There is no such name.
            PluginLoadError: The plugin can't be imported.
        """
        found = self._known(name)
        if found is not None:
            return found
        if ":" in name:
            return self.plugin_of(AllowList(allow).load(name, self.kind), name)
        for announcement in self._announcements().get(name, ()):
            return self._load(announcement)
        raise InvalidSpecError([Problem((), self._miss(name), "unknown_name")])

    def _known(self, name: str) -> Optional[Plugin]:
        found = self._scope.get().get(name) or self._names.get(name)
        if found is None:
            self._load_built_in()
            found = self._names.get(name)
        return found

    def _announcements(self) -> Dict[str, List[Announcement]]:
        if self._announced is None:
            self._announced = announced(self.group)
        return self._announced

    def _load(self, announcement: Announcement) -> Plugin:
        rivals = self._announcements()[announcement.name]
        if len(rivals) > 1:
            raise PluginLoadError(
                "{} {!r} is announced by more than one package: {}. Uninstall all but one".format(
                    self.kind, announcement.name, ", ".join(rival.distribution for rival in rivals)
                )
            )
        cls = announcement.load(self.kind)
        try:
            self._require_contract(cls)
            plugin = Plugin(announcement.name, cls, (), announcement.distribution)
        except TypeError as error:
            raise PluginLoadError(
                f"{self.kind} {announcement.name!r} of package {announcement.distribution} can't be used: {error}"
            ) from error
        with self._lock:
            first = self._names.get(announcement.name)
            if first is None or first.cls is not cls:  # its module may have registered the same class by itself
                self._names = self._with(self._names, (announcement.name,), plugin, False)
            return self._names[announcement.name]

    def plugin_of(self, cls: Any, name: Optional[str] = None) -> Plugin:
        """Return the plugin of a class, which need not be registered.

        Args:
            cls: The class.
            name: The name of the plugin; the name of the class if it is None.

        Raises:
            InvalidSpecError: The class does not have the methods of a plugin.
        """
        for plugin in self._names.values():
            if plugin.cls is cls and plugin.preset is None:
                return plugin
        try:
            self._require_contract(cls)
            return Plugin(name or cls.__name__, cls, (), _label(cls))
        except TypeError as error:
            raise InvalidSpecError([Problem((), str(error), "not_a_plugin")]) from None

    def names(self) -> List[str]:
        """Return all names and aliases, sorted."""
        self._load_built_in()
        return sorted({*self._names, *self._scope.get(), *self._announcements()})

    def listing(self) -> List[Listing]:
        """Return a row for every plugin, also for those that can't be loaded."""
        self._load_built_in()
        rows: Set[Listing] = set()
        for announcements in self._announcements().values():
            for announcement in announcements:
                try:
                    self._load(announcement)
                except ScalekeeperError as error:
                    rows.add(Listing(announcement.name, announcement.distribution, None, str(error)))
        return _sorted(rows | self._rows())

    def _rows(self) -> Set[Listing]:
        """Return a row for every registered plugin."""
        plugins, home = {**self._names, **self._scope.get()}.values(), self._load_built_in()
        return {Listing(each.name, "built in" if _is_in(home, each) else each.origin, each, None) for each in plugins}

    def classes(self) -> Dict[str, Any]:
        """Return class name → class of all plugins that can be loaded."""
        return _classes(self.listing())

    def class_named(self, class_name: str) -> Any:
        """Return the class of a plugin by the name of the class: a registered one, or else that of an entry point.

        Args:
            class_name: The name of the class.
        """
        self._load_built_in()
        return _classes(_sorted(self._rows())).get(class_name) or self.classes().get(class_name)

    def _miss(self, name: str) -> str:
        remedy = "Register your own with @scalekeeper.register(name), or allow an import path 'package.module:Class'."
        number = as_number(name)
        if number:
            return f"{shown(name)} is not the name of a {self.kind}: write {number}. A number is written without quotes"
        by_class = {plugin.cls.__name__: plugin.name for plugin in self._names.values() if plugin.preset is None}
        return unknown(self.kind, name, self.names(), remedy=remedy, near=by_class.get(name))

    # Resolving

    def resolve(self, spec: Any, *, allow: Iterable[str] = ()) -> Any:
        """Return the policy of a spec.

        Args:
            spec: A registered name, a number, a mapping ``{"name": …, parameters…}``, a class, an object, or an import
                path ``package.module:Class`` that is allowed.
            allow: Allowed import paths: ``package.module:Class``, or ``package.*`` for a package.

        Returns:
            The policy. An object is returned as it is.

        Raises:
            InvalidSpecError: The spec is not valid; ``problems`` lists why.
            InvalidSpecTypeError: The spec has a type that is not allowed.
            PluginLoadError: The plugin can't be imported.

        Example:
            >>> import scalekeeper
            >>> scalekeeper.resolve({"name": "dynamic", "initial_loss_scale": 1024}).state()
            {'current_loss_scale': 1024.0, 'good_steps': 0}
            >>> float(scalekeeper.resolve(128)())
            128.0
        """
        if isinstance(spec, (dict, Mapping)):
            values = dict(spec)
            name = values.pop("name", None)
            if not isinstance(name, str):
                raise InvalidSpecError([self._unnamed_mapping(spec)])
            return self._named(name, allow, ("name",)).make(values)
        if isinstance(spec, str):
            return self._named(spec, allow, ()).make({})
        if isinstance(spec, numbers.Real) and not isinstance(spec, bool):
            name, parameter = self.number
            try:
                return self._named(name, allow, ()).make({parameter: _plain(spec)})
            except InvalidSpecError as error:
                raise InvalidSpecError([problem._replace(path=()) for problem in error.problems]) from None
        if inspect.isclass(spec):
            return self.plugin_of(spec).make({})
        if spec is not None and all(_has_method(type(spec), method) for method in self._methods):
            return spec
        message = "{} is not a {}: give a name ({}), a number, a mapping with a name, a class or an object".format(
            shown(spec), self.kind, ", ".join(self.names())
        )
        if is_optimizer(spec):
            message = f"{described(spec)} is not a {self.kind}: give a name such as 'dynamic', a number or a policy"
            message += "; optimizer.loss_scale is the policy of an optimizer" * hasattr(type(spec), "loss_scale")
        raise InvalidSpecTypeError([Problem((), message, "not_a_spec")])

    def _named(self, name: str, allow: Iterable[str], path: Tuple[str, ...]) -> Plugin:
        try:
            return self.plugin(name, allow)
        except InvalidSpecError as error:
            raise InvalidSpecError([problem.under(*path) for problem in error.problems]) from None

    def _unnamed_mapping(self, spec: Mapping[str, Any]) -> Problem:
        if "name" in spec:
            return Problem(
                ("name",), "{} is not a name; valid: {}".format(shown(spec["name"]), ", ".join(self.names())), "name"
            )
        message = "a {} given as a mapping needs a 'name'; valid: {}".format(self.kind, ", ".join(self.names()))
        return Problem((), message, "missing")


def _is_in(home: types.ModuleType, plugin: Plugin) -> bool:
    """Return whether a package defines a plugin."""
    if plugin.preset is None:
        return plugin.cls.__module__.startswith(home.__name__ + ".")
    return plugin.origin.startswith(os.path.dirname(str(home.__file__)) + os.sep)


def _sorted(rows: Iterable[Listing]) -> List[Listing]:
    return sorted(rows, key=lambda row: (row.name, row.origin))


def _classes(rows: Iterable[Listing]) -> Dict[str, Any]:
    return {row.plugin.cls.__name__: row.plugin.cls for row in rows if row.plugin is not None}


def _plain(number: Any) -> Any:
    """Return a number of NumPy or another library as a Python number."""
    return int(number) if isinstance(number, numbers.Integral) else float(number)


def _has_method(cls: type, name: str) -> bool:
    # not getattr, which finds __call__ of the metaclass
    return any(callable(ancestor.__dict__.get(name)) for ancestor in cls.__mro__)


def _label(cls: Any) -> str:
    return "{}.{}".format(getattr(cls, "__module__", "?"), getattr(cls, "__qualname__", repr(cls)))


def _caller() -> str:
    """Return ``file:line`` of the caller of the registry."""
    frame: Optional[types.FrameType] = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in (__file__, contextlib.__file__):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"


loss_scales = Registry(
    kind="loss scale",
    group="scalekeeper.loss_scales",
    load_built_in=lambda: loaders["scalekeeper.loss_scales"](),
    number=("fixed", "loss_scale_value"),
    methods=("__call__", "update"),
)
"""The registry of loss-scale policies, a :class:`Registry`.

Example:
    >>> from scalekeeper.registry import loss_scales
    >>> "dynamic" in loss_scales.names()
    True
"""
