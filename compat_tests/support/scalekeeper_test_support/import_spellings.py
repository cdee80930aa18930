"""Every way that we could think of to name code in a document or a file, so that it be imported."""

import json

_PATHS = ["canary:Scale", "canary.inside:Scale", "os:system"]  # two that nothing has imported, and one that is there
_MORE = [
    *("builtins:eval", "builtins:exec", "subprocess:Popen", "importlib:import_module", "__main__:main", "sys:modules"),
    *("scalekeeper.registry:loss_scales", "scalekeeper.lossscales.dynamic:DynamicLossScale", "posix:system"),
    *("ctypes:CDLL", "pickle:loads", "antigravity:fly", "this:s", "plugin:Scale"),
]
_LOOK_ALIKES = str.maketrans({"a": "\u0430", "c": "\u0441", "e": "\u0435", "o": "\u043e", "s": "\u0455", "y": "\u0443"})
_FULL_WIDTH = str.maketrans({chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)})
_INVISIBLE = [
    "\u200b",
    "\u200d",
    "\u2060",
    "\ufeff",
    "\u00ad",
    "\u202e",
    "\u0301",
    "\x00",
    "\n",
    "\r",
    "\t",
    "\x85",
    "%00",
]


def of_path(path):
    """An import path in every spelling."""
    module, _, name = path.partition(":")
    yield path
    for separator in (".", "/", "::", "\\", " ", "-", "->", ">", "#", "@", "\uff1a", "\ufe55", "%3a", ": ", " :"):
        yield module + separator + name
    for before in (
        " ",
        "\t",
        ".",
        "..",
        "...",
        "/",
        "./",
        "../",
        "../../",
        "~/",
        "file:",
        "file://",
        "py:",
        "!",
        "keras>",
    ):
        yield before + path
    for after in (" ", ".", "..", ":", "()", "(1)", "[0]", ";", "#", "\\", ".*", ":*", "/", ".py", "\u3002"):
        yield path + after
    for character in _INVISIBLE:
        yield character + path
        yield path + character
        yield f"{module}{character}:{name}"
        yield f"{module}:{character}{name}"
        yield module[:1] + character + module[1:] + ":" + name
    yield from (path.translate(_LOOK_ALIKES), path.translate(_FULL_WIDTH), module.translate(_FULL_WIDTH) + ":" + name)
    yield from (path.upper(), path.title(), path.swapcase(), path[::-1])
    yield from (
        f"{module}..{name}",
        f"{module}.:{name}",
        f".{module}:{name}",
        f"{module}:.{name}",
        f"{module}:{name}.x",
    )
    yield from (f"{module}.__init__:{name}", f"{module}.__class__:{name}", f"{module}:__import__", f"{module}:__dict__")
    yield from (f"__import__('{module}')", f"__import__:{module}", f"{module}:__builtins__", f"importlib:{module}")
    yield from (
        f"/{module}.py:{name}",
        f"/tmp/{module}.py",
        f"./{module}:{name}",
        f"../{module}:{name}",
        f"{module}.py:{name}",
    )
    yield from (
        f"${{{module}:{name}}}",
        f"%({module}:{name})s",
        f"{{{module}:{name}}}",
        f"!!python/name:{module}.{name}",
    )
    yield from (f"Custom>{name}", f"{module}>{name}", f"Custom>{module}.{name}", f"keras.src.{module}>{name}")


def names():
    """All of them, once."""
    return list(dict.fromkeys([*_MORE, *(spelling for path in _PATHS for spelling in of_path(path))]))


def for_package():
    """Return what stands near ``package``, all of which may be imported, and is something else."""
    return [
        *(
            "packageevil:Scale",
            "packageevil.module:Scale",
            "package_evil:Scale",
            "Package:Scale",
            "PACKAGE.module:Mine",
        ),
        *("package.module:os", "package.module:Popen", "package.module:Foreign", "package.module:__builtins__"),
        *("package.module.os:system", "package.os:system", "package..module:Mine", "package.:Mine", ".package:Mine"),
        *("package/module:Mine", "package.module:Mine ", "package.module:Mine.x", "package.*:Mine", "package.module:*"),
        *("packag\u0435.module:Mine", "\uff50ackage.module:Mine", "package.module\u200b:Mine", "package\x00evil:Mine"),
        *("canary:Scale", "..canary:Scale", "package...canary:Scale", "package.canary:Scale", "package.module:canary"),
    ]


_TAGS = [
    *("python/none", "python/bool", "python/str", "python/unicode", "python/bytes", "python/int", "python/long"),
    *("python/float", "python/complex", "python/list", "python/tuple", "python/dict", "python/name:{0}.{1}"),
    *("python/module:{0}", "python/object:{0}.{1}", "python/object/new:{0}.{1}", "python/object/apply:{0}.{1}"),
    *(
        "str",
        "int",
        "float",
        "bool",
        "null",
        "binary",
        "timestamp",
        "omap",
        "pairs",
        "set",
        "seq",
        "map",
        "merge",
        "value",
    ),
]


def tagged_documents():
    """YAML with every tag that PyYAML's loaders know, in every way to write a tag, on every kind of value."""
    for tag in _TAGS:
        for module, name in (("canary", "Scale"), ("os", "system")):
            full = tag.format(module, name)
            for written in (f"!!{full}", f"!<tag:yaml.org,2002:{full}>", f"!e!{full}", f"!y!{full}", f"! !!{full}"):
                for value in ("[echo]", "{args: [echo]}", "echo"):
                    head = ""
                    if written.startswith("!e!"):
                        head = "%TAG !e! tag:yaml.org,2002:\n---\n"
                    elif written.startswith("!y!"):
                        written, head = f"!{full}", "%TAG ! tag:yaml.org,2002:\n---\n"
                    yield f"{head}optimizer: sgd\nloss_scale: {written} {value}\n"
                    yield f"{head}{written} {{optimizer: sgd}}\n"
                    yield f"{head}optimizer: sgd\n? {written} {value}\n: 1\n"


def documents_with(name):
    """A name at every place of a document where names stand."""
    yield {"optimizer": "sgd", "loss_scale": name}
    yield {"optimizer": "sgd", "loss_scale": {"name": name, "initial_loss_scale": 4}}
    yield {"optimizer": name}
    yield {"optimizer": {"name": name}}
    yield {"optimizer": {"name": "sgd", "learning_rate": {"schedule": name}}}
    yield {"optimizer": "sgd", "$schema": name, "skipped_steps": name}
    yield {"optimizer": {"name": "sgd", name: 1}, name: {}}


def configurations_with(name):
    """A name at every place of an optimizer's configuration where classes and modules stand."""
    module, _, cls = name.partition(":")
    evil = {"class_name": cls or name, "module": module, "registered_name": name, "config": {"name": name}}
    sgd = {"class_name": "SGD", "config": {"learning_rate": 0.5}}
    yield {"class_name": name, "config": {}}
    yield {"class_name": "LossScaleOptimizer", "config": {"inner_optimizer": evil, "dynamic": True}}
    yield {"class_name": "LossScaleOptimizer", "config": {"optimizer": sgd, "loss_scale": evil}}
    yield {"class_name": "SGD", "config": {"learning_rate": evil}, "module": name, "registered_name": name}


def model_with(name):
    """The configuration of a model whose layers say that they are code from there."""
    module, _, cls = name.partition(":")
    code = {"name": "d1", "function": {"class_name": "__lambda__", "config": {"code": "4wAA"}}, "module": module}
    layers = [
        {"class_name": cls or name, "module": module, "registered_name": name, "config": {"name": "d0"}},
        {"class_name": "Lambda", "config": {**code, "function_type": "lambda", "output_shape_module": module}},
    ]
    config = {"name": name, "layers": layers}
    return {"class_name": "Sequential", "module": module, "registered_name": f"Custom>{name}", "config": config}


def as_text(value):
    """JSON, which is YAML too; what can't be said in UTF-8 is escaped."""
    return json.dumps(value)
