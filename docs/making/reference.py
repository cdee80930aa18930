"""The pages of docs/reference/: every public name, from its signature and its docstring.

The modules are parsed and not run, because those of the optimizer need TensorFlow.
"""

from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import ast
import builtins
import functools
import importlib
import inspect
import os
import re

import scalekeeper
from scalekeeper_test_support.repository import load_script, repository_path

# rooms with public names, and the address of each: a name has the first address where it is public
ROOMS = (
    "scalekeeper",
    "scalekeeper.lossscales",
    "scalekeeper.registry",
    "scalekeeper.optimizer",
    "scalekeeper.serialization",
    "scalekeeper.serialization.formats",
    "scalekeeper.simulation",
    "scalekeeper.diagnosis",
    "scalekeeper.testing",
    "scalekeeper.cli",
)
# page → its title, what it is about, and (page that explains the names, the names)
PAGES: Dict[str, Tuple[str, str, List[Tuple[str, str]]]] = {
    "optimizer": (
        "The optimizer and its callbacks",
        "Wrap an optimizer, take steps, and watch them.",
        [
            ("optimizer.md", "LossScaleOptimizer"),
            ("optimizer.md#several-optimizers-one-loss-scale", "SharedLossScale"),
            ("optimizer.md#keras-object-registration", "custom_objects"),
            ("monitoring.md#read-the-telemetry", "Telemetry"),
            ("monitoring.md#in-keras", "LossScaleLogger"),
            ("saving.md", "ModelCheckpoint"),
            ("simulating.md#traces", "TraceRecorder"),
        ],
    ),
    "policies": (
        "Policies",
        "The built-in policies, the base class of your own, and their registration.",
        [
            ("policies.md", "DynamicLossScale FixedLossScale NoLossScale ScheduledLossScale TolerantLossScale"),
            ("policies.md", "AdaptiveWindowLossScale LogMaxLossScale presets resolve"),
            ("policies.md#write-a-policy", "LossScale LossScaleParams Report NumpyOps advance"),
            ("policies.md#register-a-policy", "register register_preset temporary_registration loss_scales Registry"),
        ],
    ),
    "documents": (
        "Documents",
        "Build an optimizer from YAML or JSON, and check documents.",
        [
            ("documents.md", "build load_document Document OptimizerSpec"),
            ("documents.md#in-an-editor", "document_schema"),
            ("documents.md#the-target", "Target target known_targets"),
        ],
    ),
    "files": (
        "Files",
        "Save, load, inspect, convert and compare files of every version.",
        [
            ("saving.md#a-whole-model", "save_model load_model"),
            ("saving.md#a-model-that-you-build-in-code", "restore RestoreReport"),
            ("saving.md#the-state-itself", "save_state read_state"),
            ("files.md#inspect-a-file", "inspect Inspection"),
            ("files.md#convert-a-file", "convert convert_folder Conversion"),
            ("files.md#compare-two-files", "verify Verification"),
        ],
    ),
    "formats": (
        "File formats",
        "The codecs of file formats, for a package that adds a format.",
        [
            ("adding.md#a-file-format", "formats Format WholeModelFormat register_format unregister_format"),
            ("adding.md#a-file-format", "detect read format_by_name format_by_ending"),
            ("adding.md#a-file-format", "ConversionRequest WritePlan ModelInCode ResumeContext"),
        ],
    ),
    "simulation": (
        "Simulation",
        "Run policies over recorded or synthetic gradients, without TensorFlow.",
        [
            ("simulating.md", "simulate Simulation"),
            ("simulating.md#a-loss-scale-from-a-trace", "recommend Recommendation"),
            ("simulating.md#try-many-parameters", "sweep Sweep SweepPoint"),
            ("simulating.md#traces", "Trace TraceWriter read_trace write_trace"),
            ("simulating.md", "synthetic overflowing_above MODELS parse_model simulate_every_step"),
        ],
    ),
    "diagnosis": (
        "Diagnosis",
        "Find out where a model leaves the range of float16.",
        [("diagnosing.md", "diagnose Diagnosis Finding LayerFigures Origin Spread")],
    ),
    "testing": (
        "Testing",
        "Check your own policy or inner optimizer.",
        [
            ("testing.md#the-checks", "check_loss_scale loss_scale_checks CHECKS"),
            (
                "optimizer.md#check-your-own-optimizer",
                "check_inner_optimizer inner_optimizer_checks INNER_OPTIMIZER_CHECKS",
            ),
            ("testing.md", "CheckReport Outcome"),
        ],
    ),
    "errors": (
        "Errors and warnings",
        "Every error derives from `ScalekeeperError` and from the built-in class that fits.",
        [
            ("policies.md", "ScalekeeperError ArgumentError ArgumentTypeError WrongArgumentError ReadOnlyError"),
            ("policies.md", "InvalidSpecError InvalidSpecTypeError Problem NameTakenError PluginLoadError"),
            ("documents.md", "DocumentError UnknownTargetError"),
            ("testing.md", "PolicyContractError StateTypeError BrokenContractError"),
            ("optimizer.md", "StrategyError UnsupportedOperationError ForgottenScalingWarning"),
            ("monitoring.md", "TooManySkipsError"),
            ("saving.md", "StateMismatchError IncompleteRestoreError IncompleteRestoreWarning NothingRestoredError"),
            ("saving.md", "AmbiguousMatchError AssumedOrderWarning MissingFileError UnreadableFileError"),
            ("saving.md", "ModelDiffersError"),
            ("files.md", "ConversionError LossyConversionError DestinationExistsError TranslationError"),
            ("installing.md", "MissingPackageError UntestedVersionWarning"),
            ("demo.md", "DemoError"),
        ],
    ),
    "command": (
        "The version and the command",
        "The version of scalekeeper, and its command in Python.",
        [("installing.md", "__version__"), ("command_line.md", "main run")],
    ),
}
# modules of the adapters → the versions of a method that the public class lacks and this is the first to define
ADAPTERS = {
    "scalekeeper.optimizer._keras.slotless_optimizers": "The new optimizers of TensorFlow 2.11 to 2.15, tf_keras and "
    "Keras 3.",
    "scalekeeper.optimizer._keras.keras2_new_optimizers": "The new optimizers of TensorFlow 2.11 to 2.15, tf_keras and "
    "Keras 3.",
    "scalekeeper.optimizer._keras.keras3": "Keras 3.",
    "scalekeeper.optimizer._keras.optimizer_v2": "TensorFlow 2.4 to 2.10, and `legacy` optimizers.",
    "scalekeeper.optimizer._keras.tf_2_0_to_2_3": "TensorFlow 2.0 to 2.3.",
}
# documented for 2.0 and present on every version: what an adapter lacks, Keras's own class has
ON_EVERY_VERSION = {
    *("minimize", "get_gradients", "get_updates", "get_slot_names", "get_weights", "variables", "weights"),
    "iterations",
}
# methods that Keras calls, not you
CALLED_BY_KERAS = re.compile(r"on_\w+|set_model|load_own_variables|name")
SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Versions", "Example")
LISTS = ("Args", "Attributes", "Raises")
DATA_OF_CLASSES = ("NamedTuple", "BaseModel")
WIDTH = 110


# Docstrings


class Docstring(NamedTuple):
    """A docstring in parts: ``sections`` has lists of (name, text) for Args, Attributes and Raises."""

    text: str
    sections: Dict[str, Any]

    @property
    def summary(self) -> str:
        """The first line."""
        return self.text.partition("\n")[0]


def parsed_docstring(docstring: Optional[str]) -> Docstring:
    """Take a Google-style docstring apart."""
    text: List[str] = []
    found: Dict[str, List[str]] = {}
    lines = text
    # click ends the help of a command at a form feed
    for line in inspect.cleandoc((docstring or "").replace("\f", "")).split("\n"):
        if line.rstrip(":") in SECTIONS and line.endswith(":"):
            lines = found.setdefault(line[:-1], [])
        elif line and not line.startswith(" ") and lines is not text:
            lines = text
            lines += ["", line]
        else:
            lines.append(line)
    bodies = {name: inspect.cleandoc("\n" + "\n".join(body)) for name, body in found.items()}
    sections = {name: _items(body) if name in LISTS else body for name, body in bodies.items()}
    return Docstring("\n".join(text).strip(), sections)


def _items(body: str) -> List[Tuple[str, str]]:
    items: List[Tuple[str, str]] = []
    for line in body.splitlines():
        name = re.match(r"(\*{0,2}[\w.]+): +(.*)", line)
        if name:
            items.append((name.group(1), name.group(2)))
        elif items:
            items[-1] = (items[-1][0], f"{items[-1][1]} {line.strip()}".rstrip())
    return items


# Definitions


class Definition(NamedTuple):
    """A definition in a module: its syntax tree and its docstring."""

    module: str
    node: Any
    docstring: Docstring

    @property
    def is_class(self) -> bool:
        """Whether it is a class."""
        return isinstance(self.node, ast.ClassDef)

    @property
    def is_function(self) -> bool:
        """Whether it is a function or a method."""
        return isinstance(self.node, ast.FunctionDef)

    def has_decorator(self, name: str) -> bool:
        """Return whether a function has a decorator that ends with a name."""
        return any(_dotted(each).endswith(name) for each in self.node.decorator_list)

    @property
    def arguments(self) -> List[ast.arg]:
        """The parameters of a function, without ``self`` and ``cls``."""
        spec = self.node.args
        found = [*spec.args[self.is_bound :], *([spec.vararg] if spec.vararg else []), *spec.kwonlyargs]
        return [*found, *([spec.kwarg] if spec.kwarg else [])]

    @property
    def is_bound(self) -> bool:
        """Whether the first parameter is the object or the class."""
        return [each.arg for each in self.node.args.args[:1]] in (["self"], ["cls"])

    @property
    def raised(self) -> List[str]:
        """The names of the classes in the ``raise`` statements of a function, without those of nested functions."""
        found = [each.exc for each in _own_nodes(self.node) if isinstance(each, ast.Raise) and each.exc is not None]
        return [_dotted(each).split(".")[-1] for each in found]


def _dotted(node: Any) -> str:
    """Return the name of a class or function in an expression such as ``module.name(…)``."""
    if isinstance(node, ast.Call):
        return _dotted(node.func)
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _own_nodes(function: Any) -> Iterator[Any]:
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, (ast.FunctionDef, ast.Lambda)):
            yield child
            yield from _own_nodes(child)


def _file(module: str) -> Optional[str]:
    """Return the file of a module of the checkout; None if there is no such module."""
    parts = module.split(".")[1:] or ["api"]
    for path in (repository_path(*parts, "__init__.py"), repository_path(*parts[:-1], parts[-1] + ".py")):
        if os.path.exists(path):
            return path
    return None


@functools.lru_cache(maxsize=None)
def _statements(module: str) -> List[Any]:
    """Return the statements of a module, with those under ``if``."""
    path = _file(module)
    assert path is not None, module
    with open(path, encoding="utf-8") as stream:
        tree = ast.parse(stream.read())
    return [each for one in tree.body for each in ([*one.body, *one.orelse] if isinstance(one, ast.If) else [one])]


def definition(module: str, name: str) -> Definition:
    """Return the definition of a name of a module, wherever it is imported from."""
    statements = _statements(module)
    for position, node in enumerate(statements):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
            return Definition(module, node, parsed_docstring(ast.get_docstring(node)))
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _imported(module, node, alias.name)
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and any(getattr(each, "id", "") == name for each in targets):
            if isinstance(node.value, ast.Attribute):  # a method of an object: register = loss_scales.register
                held = definition(module, node.value.value.id)
                return method(definition(held.module, held.node.value.func.id), node.value.attr)
            if node.value is not None or name == "__version__":
                after = statements[position + 1] if position + 1 < len(statements) else None
                is_described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                return Definition(module, node, parsed_docstring(after.value.value if is_described else None))
    if module == "scalekeeper.optimizer":  # its members depend on Keras, so it is not imported for type checkers
        return definition(module + ".loss_scale_optimizer", name)
    raise LookupError(f"{module} does not define {name}")


def _home(module: str, node: ast.ImportFrom) -> str:
    """Return the module that a statement of a module imports from."""
    path = _file(module)
    is_package = path is not None and path.endswith("__init__.py")
    parts = module.split(".")
    base = parts[: len(parts) - node.level + is_package] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])


def _imported(module: str, node: ast.ImportFrom, name: str) -> Definition:
    home = _home(module, node)
    if not home.startswith("scalekeeper"):
        raise LookupError(f"{module} imports {name} from {home}")
    if _file(f"{home}.{name}") is not None and node.module is None:
        tree = ast.Module(body=_statements(f"{home}.{name}"), type_ignores=[])
        return Definition(f"{home}.{name}", tree, parsed_docstring(ast.get_docstring(tree)))
    return definition(home, name)


def method(cls: Definition, name: str) -> Definition:
    """Return the definition of a method in the body of a class."""
    (found,) = (each for each in _methods(cls) if each.node.name == name)
    return found


def _methods(cls: Definition) -> List[Definition]:
    """Return the methods and properties in the body of a class, without setters."""
    found = [each for each in cls.node.body if isinstance(each, ast.FunctionDef)]
    made = [Definition(cls.module, each, parsed_docstring(ast.get_docstring(each))) for each in found]
    return [each for each in made if not each.has_decorator(".setter")]


def bases(cls: Definition) -> List[str]:
    """Return the names of the base classes."""
    return [_dotted(each) for each in cls.node.bases]


# Entries


class Entry(NamedTuple):
    """A public name: its address, its definition and the page that explains it."""

    address: str
    definition: Definition
    page: str
    explained: str

    @property
    def name(self) -> str:
        """The name without the package."""
        return self.address.rpartition(".")[2]

    @property
    def heading(self) -> str:
        """The heading, of which the anchor is made: with the kind if the page has another heading with this anchor."""
        found = self.definition
        if isinstance(found.node, ast.Module):
            return f"`{self.address}`"
        others = [each.name for each in entries().values() if each.page == self.page and each.address != self.address]
        if self.name.lower() not in map(str.lower, [PAGES[self.page][0], *others]):
            return f"`{self.name}`"
        return f"`{self.name}` ({'class' if found.is_class else 'function' if found.is_function else 'constant'})"

    @property
    def members(self) -> List[Tuple[Definition, str]]:
        """The documented methods of a class, each with the versions that have it, or with nothing for all of them."""
        if not self.definition.is_class:
            return []
        own = _methods(self.definition)
        found = {each.node.name: (each, "") for each in own}
        if self.name == "LossScaleOptimizer":
            for module, versions in ADAPTERS.items():
                for cls in (each for each in _statements(module) if isinstance(each, ast.ClassDef)):
                    if cls.name.endswith("Adapter"):
                        for each in _methods(Definition(module, cls, parsed_docstring(None))):
                            is_everywhere = each.node.name in ON_EVERY_VERSION
                            found.setdefault(each.node.name, (each, "" if is_everywhere else versions))
        return [
            each
            for name, each in found.items()
            if not name.startswith("_") and not CALLED_BY_KERAS.fullmatch(name) and not self._inherits(each[0])
        ]

    def _inherits(self, member: Definition) -> bool:
        """Return whether the docstring of a method is that of a public base class."""
        names = [base.split(".")[-1] for base in bases(self.definition)]
        documented = (entries()[name].definition for name in names if name in entries())
        return not member.docstring.text and any(
            each.node.name == member.node.name for base in documented for each in _methods(base)
        )

    @property
    def is_error(self) -> bool:
        """Whether it is an error or a warning."""
        return self.definition.is_class and self.name.endswith(("Error", "Warning"))

    @property
    def policy(self) -> Any:
        """The class, if it is a policy with parameters of its own."""
        if not self.definition.is_class or not self.name.endswith("LossScale") or self.name == "LossScale":
            return None
        return getattr(scalekeeper, self.name) if self.definition.module.startswith("scalekeeper.lossscales") else None

    @property
    def constructor(self) -> Optional[Definition]:
        """The constructor, if you call it."""
        if not self.definition.is_class or self.is_error or {*bases(self.definition)} & {*DATA_OF_CLASSES}:
            return None
        own = [each for each in _methods(self.definition) if each.node.name == "__init__"]
        return own[0] if own else None


def public_names() -> Dict[str, str]:
    """Return the address of each public name: the first of ROOMS where it is in ``__all__``."""
    found: Dict[str, str] = {}
    for room in ROOMS:
        for name in importlib.import_module(room).__all__:
            found.setdefault(name, f"{room}.{name}")
    return found


@functools.lru_cache(maxsize=None)
def entries() -> Dict[str, Entry]:
    """Return name → entry, in the order of the pages."""
    addresses, found = public_names(), {}
    for page, (_, _, topics) in PAGES.items():
        for explained, names in topics:
            for name in names.split():
                address = addresses[name]
                room = address.rpartition(".")[0]
                if name in scalekeeper._HOME:
                    room = "scalekeeper." + scalekeeper._HOME[name]
                found[name] = Entry(address, definition(room, name), page, explained)
    return found


# Markdown


def pages() -> Dict[str, str]:
    """Return the name of each file of docs/reference/ and its text."""
    return {"index.md": _index(), **{f"{name}.md": _page(name) for name in PAGES}}


def _index() -> str:
    lines = ["# Reference of the Python interface", ""]
    lines += ["Every public name, with its signature and an example. The examples are run by the tests. A name that is"]
    lines += ["not listed here, or begins with an underscore, is internal and can change without notice.", ""]
    for page, (title, about, _) in PAGES.items():
        lines += [f"## {title}", "", about, "", "| name | |", "| --- | --- |"]
        for entry in (each for each in entries().values() if each.page == page):
            summary = _inline(entry.definition.docstring.summary, "index").replace("|", "\\|")
            lines.append(f"| [`{entry.address}`]({page}.md#{_anchor(entry.heading)}) | {summary} |")
        lines.append("")
    return "\n".join(lines)


def _page(name: str) -> str:
    title, about, _ = PAGES[name]
    parts = [f"# {title}", about, *(_section(each) for each in entries().values() if each.page == name)]
    return "\n\n".join(parts) + "\n"


def _section(entry: Entry) -> str:
    found = entry.definition
    parts = [f"## {entry.heading}"]
    if found.is_function:
        parts.append(_code(signature(entry.address, found)))
    elif entry.policy is not None:
        parts.append(_code(_signature_of_policy(entry)))
    elif entry.constructor is not None:
        parts.append(_code(signature(entry.address, entry.constructor)))
    else:
        parts.append(_code(entry.address))
    shown = [each for each in bases(found) if _is_public(each)] if found.is_class else []
    if shown:
        parts.append("Bases: " + ", ".join(_linked(each, entry.page) for each in shown) + ".")
    parts += _description(found.docstring, entry.page, _table_of_policy(entry))
    parts.append(f"Explained in [{_title(entry.explained)}](../{entry.explained}).")
    for member, versions in entry.members:
        parts.append(f"### `{entry.name}.{member.node.name}`")
        is_property = member.has_decorator("property")
        named = f"{entry.name}.{member.node.name}"
        parts.append(_code(named if is_property else signature(named, member)))
        parts += _description(member.docstring, entry.page)
        if versions and "Versions" not in member.docstring.sections:
            parts.append(f"**Versions:** {versions}")
    return "\n\n".join(parts)


def _is_public(base: str) -> bool:
    """Return whether a base class is public here, of Python or of Keras."""
    return base in entries() or base in DATA_OF_CLASSES or hasattr(builtins, base) or "." in base


def _table_of_policy(entry: Entry) -> str:
    if entry.policy is None:
        return ""
    return "**Args**\n\n" + load_script("docs/making/configuration.py").parameters(entry.policy.Params)


def _signature_of_policy(entry: Entry) -> str:
    fields = entry.policy.Params.model_fields
    shown = [name if each.is_required() else f"{name}={each.default!r}" for name, each in fields.items()]
    return _wrapped(entry.address, shown, "")


def signature(address: str, function: Definition) -> str:
    """Return the signature of a function with its types and the values of its defaults."""
    spec = function.node.args
    defaults = [None] * (len(spec.args) - len(spec.defaults)) + list(spec.defaults)
    shown = [_parameter(function, *each) for each in list(zip(spec.args, defaults))[function.is_bound :]]
    if spec.vararg:
        shown.append("*" + _parameter(function, spec.vararg, None))
    elif spec.kwonlyargs:
        shown.append("*")
    shown += [_parameter(function, *each) for each in zip(spec.kwonlyargs, spec.kw_defaults)]
    if spec.kwarg:
        shown.append("**" + _parameter(function, spec.kwarg, None))
    is_constructor = function.node.name == "__init__" or function.node.returns is None
    return _wrapped(address, shown, "" if is_constructor else " -> " + _annotation(function.node.returns))


def _parameter(function: Definition, parameter: ast.arg, default: Any) -> str:
    text = parameter.arg + (f": {_annotation(parameter.annotation)}" if parameter.annotation else "")
    return text if default is None else f"{text} = {_default(function, default)}"


def _annotation(node: Any) -> str:
    return re.sub(r"'([\w.\[\], ]+)'", r"\1", ast.unparse(node))


def _default(function: Definition, node: Any) -> str:
    """Return a default as code; a constant of a module by its value."""
    if not isinstance(node, ast.Name):
        return ast.unparse(node)
    for each in _statements(function.module):
        if isinstance(each, ast.ImportFrom) and node.id in (alias.name for alias in each.names):
            return repr(getattr(importlib.import_module(_home(function.module, each)), node.id))
    return ast.unparse(definition(function.module, node.id).node.value)


def _wrapped(address: str, parameters: List[str], returned: str) -> str:
    parameters = [each if '"' in each else each.replace("'", '"') for each in parameters]
    line = f"{address}({', '.join(parameters)}){returned}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{address}(", *(f"    {each}," for each in parameters), f"){returned}"])


def _description(docstring: Docstring, page: str, arguments: str = "") -> List[str]:
    """Return the paragraphs and sections of a docstring as Markdown."""
    parts = [_paragraph(each, page) for each in docstring.text.split("\n\n") if each]
    parts += [arguments] if arguments else []
    for name in SECTIONS:
        body = docstring.sections.get(name)
        if not body:
            continue
        if name in LISTS:
            shown = [(_linked(item, page) if name == "Raises" else f"`{item}`", text) for item, text in body]
            parts.append("\n".join([f"**{name}**", "", *(f"- {item}: {_inline(text, page)}" for item, text in shown)]))
        elif name == "Example":
            parts += ["**Example**", *_example(body, page)]
        else:
            parts.append(f"**{name}:** {_inline(' '.join(body.split()), page)}")
    return parts


def _example(body: str, page: str) -> List[str]:
    """Return code and the sentences between as Markdown."""
    blocks = body.split("\n\n")
    return [_code(each, "pycon") if each.startswith(">>> ") else _inline(each, page) for each in blocks]


def _paragraph(text: str, page: str) -> str:
    """Return a paragraph on one line, or a list as it is."""
    return _inline(text if text.startswith("- ") else " ".join(text.split()), page)


def _inline(text: str, page: str) -> str:
    """Return a sentence with its roles as links and its code between single backticks."""
    text = re.sub(r":meth:`(\w+)`", r"``\1``", text)  # of the same class
    text = re.sub(r":\w+:`([\w.]+)`", lambda match: _linked(match.group(1), page), text)
    return text.replace("``", "`")


def _linked(name: str, page: str) -> str:
    """Return a name such as ``resolve``, ``registry.Target`` or ``Trace.first`` as code, a public one with a link."""
    parts = name.split(".")
    while ".".join(["scalekeeper", *parts[:1]]) in ROOMS or parts[0] == "scalekeeper":
        parts = parts[1:]
    entry = entries().get(parts[0])
    if entry is None:
        return f"`{name}`"
    anchor = _anchor("".join([entry.name, *parts[1:]]) if parts[1:] else entry.heading)
    return f"[`{'.'.join(parts)}`]({'' if entry.page == page else entry.page + '.md'}#{anchor})"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading).replace(" ", "-").lower()


def _code(text: str, language: str = "python") -> str:
    return f"```{language}\n{text}\n```"


@functools.lru_cache(maxsize=None)
def _title(page: str) -> str:
    with open(repository_path("docs", page.partition("#")[0]), encoding="utf-8") as stream:
        return stream.readline()[2:].strip()


def write() -> None:
    """Write all pages."""
    folder = repository_path("docs", "reference")
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        os.remove(os.path.join(folder, name))
    for name, text in pages().items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as stream:
            stream.write(text)
