"""Programs that people write: what they restore is the original's to the bit, or refused with nothing changed.

A row of the table states how a program saves, how the program that restores differs, in which formats, and the expected
result. ``SCALEKEEPER_WHOLE`` runs all of it; otherwise every row runs in one format, and the formats take turns.
"""

import functools
import itertools
import os
import re

import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.serialization._keras_introspection import numbers_chosen_names
from scalekeeper_test_support import program_scenarios as scenarios
from scalekeeper_test_support.installed_keras import (
    HAS_LOSS_SCALE_OBJECTS,
    HAS_NEW_OPTIMIZERS,
    IS_KERAS_3,
    WRITES_KERAS_FILES,
    set_global_policy,
)
from scalekeeper_test_support.program_scenarios import Program, chain, dense, model_of, wrapped

KINDS = ("sequential", "functional", "subclassed")
AUTOMATIC = {"a": None, "b": None, "c": None}
NAMED = {"enc": "enc", "mid": "mid", "dec": "dec"}
PARTLY = {"enc": "enc", "a": None, "dec": "dec", "b": None}
MODEL_FILES = ("h5", "keras", "saved_model")
FILES = ("checkpoint", *MODEL_FILES)
ALL = (*FILES, "npz")
ROWS = []
READS_ALL = "SCALEKEEPER_WHOLE" in os.environ
BARE = functools.partial(tf.keras.optimizers.Adam, 0.01)


class Row:
    """One scenario: two programs, the formats, and what must come out ("equal", "any" or "refused")."""

    def __init__(self, name, source, target=None, forms=ALL, expect="any", npz=None, **options):
        self.name, self.source, self.target = name, source, target or source
        self.npz = npz or expect  # a state of save_state has the names of trained variables, and nothing else
        self.forms, self.expect, self.options = scenarios.formats(*forms), expect, options
        ROWS.append(self)


def of(kind, names, **options):
    return functools.partial(chain, kind, names, **options)


def subclass_files(kind, forms):
    """Keras writes no H5 of a subclassed model, and rebuilds it from .keras only if it has a configuration."""
    unwritten = ("h5", "plain_h5", *(() if IS_KERAS_3 else ("model_checkpoint",)))
    return [form for form in forms if kind != "subclassed" or form not in unwritten]


# TensorFlow's own guide: a step counter beside the optimizer and the net

for kind, (label, names) in itertools.product(
    KINDS, {"automatic": AUTOMATIC, "named": NAMED, "partly": PARTLY}.items()
):
    for counter in ("step", "iterations", "iter", "epoch"):
        if kind == "functional" or counter == "step":
            Row(
                f"counter-{counter}-{label}-{kind}",
                lambda kind=kind, names=names, counter=counter: chain(
                    kind, names, **{counter: tf.Variable(1, dtype=tf.int64)}
                ),
                forms=("checkpoint", "manager"),
                expect="equal",
            )
    Row(f"same-program-{label}-{kind}", of(kind, names), forms=subclass_files(kind, ALL), expect="equal")
    Row(
        f"same-program-warm-{label}-{kind}",
        of(kind, names),
        forms=subclass_files(kind, ALL),
        expect="equal",
        is_warm=True,
    )


def many_counters(**options):
    """A checkpoint whose root has variables with the names of an optimizer's own."""
    return chain(
        "functional",
        AUTOMATIC,
        step=tf.Variable(7),
        iter=tf.Variable(8, dtype=tf.int64),
        learning_rate=tf.Variable(0.5),
        best_loss=tf.Variable(2.5),
        loss_scale=tf.Variable(3.0),
        table=tf.Variable(tf.zeros((3, 3))),
        **options,
    )


def plain_sgd():
    return wrapped(tf.keras.optimizers.SGD(0.1))


Row("many-counters", many_counters, forms=("checkpoint",), expect="equal")
Row(
    "many-counters-no-slots",
    functools.partial(many_counters, optimizer=plain_sgd),
    forms=("checkpoint",),
    expect="equal",
)


# Several optimizers in one checkpoint


def adversaries(count, kind="sequential", named=False, use_option=False, others=0, widths=(3, 3, 3, 3)):
    """Models with an optimizer each, as in TensorFlow's tutorials on GANs; the last layers have these widths."""
    labels = ("generator", "discriminator", "generator_f", "discriminator_y")[:count]
    units, tracked = {}, {}
    for label, width in zip(labels, widths):
        own = {key: f"{label}_{key}" if named else None for key in AUTOMATIC}
        last = {"c": functools.partial(dense, own["c"], width)}
        each = chain(kind, own, others=others, layers=last).first
        options = {"optimizer": label + "_optimizer"} if use_option else {}
        units[label] = each._replace(options=options)
        tracked.update({label: each.model, label + "_optimizer": each.optimizer})
    return Program(units, tracked)


for kind, count, named in itertools.product(KINDS, (2, 3, 4), (False, True)):
    if kind == "sequential" or count == 2:
        label = "named" if named else "automatic"
        Row(
            f"{count}-optimizers-{label}-{kind}",
            functools.partial(adversaries, count, kind=kind, named=named, widths=(3, 1, 4, 2)),
            forms=("checkpoint", "manager"),
            expect="equal",
        )
        # nothing but a name that the caller gives tells models of equal shapes apart
        Row(
            f"{count}-optimizers-alike-{label}-{kind}",
            functools.partial(adversaries, count, kind=kind, named=named),
            forms=("checkpoint",),
        )
        if scenarios.accepts(scalekeeper.restore, "optimizer"):
            Row(
                f"{count}-optimizers-{label}-{kind}-chosen",
                functools.partial(adversaries, count, kind=kind, named=named),
                functools.partial(adversaries, count, kind=kind, named=named, use_option=True, others=2),
                forms=("checkpoint",),
                expect="equal",
            )


def only(label, **options):
    """A program that restores one of the models alone."""
    whole = adversaries(2, **options)
    return Program({label: whole.units[label]}, {label: whole.units[label].model})


def both(**options):
    return adversaries(2, **options)


for label in ("generator", "discriminator"):
    Row(
        f"one-of-2-optimizers-{label}",
        functools.partial(both, widths=(3, 1)),
        functools.partial(only, label, widths=(3, 1)),
        forms=("checkpoint",),
        expect="equal",
    )
    Row(f"one-of-2-optimizers-alike-{label}", both, functools.partial(only, label), forms=("checkpoint",))


def backbone_and_head(is_target=False):
    """One model, two optimizers, each for a part of its variables; the model is compiled with the first."""
    whole = chain("functional", NAMED)
    second = wrapped(tf.keras.optimizers.Adam(0.5))
    first = whole.first.optimizer
    parts = whole.first.parts
    if not is_target:
        for each, count in ((first, 3), (second, 5)):
            trained = parts["enc"].weights if each is first else parts["dec"].weights
            for _ in range(count):
                each.apply_gradients([(tf.ones(tuple(one.shape)), one) for one in trained])
    return Program(whole.units, {"net": whole.first.model, "first": first, "second": second})


Row(
    "two-optimizers-one-model",
    backbone_and_head,
    functools.partial(backbone_and_head, is_target=True),
    forms=("checkpoint",),
    order=lambda variables: [each for each in variables if "enc" in getattr(each, "path", each.name)],
)


def with_average(is_first=False):
    """A net and its moving average, which has the same layers, in one checkpoint."""
    whole = chain("functional", NAMED)
    average = chain("functional", NAMED, optimizer=None)
    scenarios.stamp(average, 9000)
    label = "average" if is_first else "zaverage"
    return Program(
        whole.units, {"net": whole.first.model, "optimizer": whole.first.optimizer, label: average.first.model}
    )


Row("net-and-its-average", with_average, forms=("checkpoint",))
Row("average-and-its-net", functools.partial(with_average, True), forms=("checkpoint",))


def in_trainer():
    """A trainer object that holds net and optimizer."""
    whole = chain("subclassed", AUTOMATIC)
    trainer = tf.Module()
    trainer.net, trainer.opt, trainer.step = whole.first.model, whole.first.optimizer, tf.Variable(3)
    return Program(whole.units, {"trainer": trainer})


def compiled_model_only(kind="functional"):
    whole = chain(kind, AUTOMATIC)
    return Program(whole.units, {"model": whole.first.model})


Row("trainer-object", in_trainer, forms=("checkpoint",), expect="equal")
if not IS_KERAS_3:  # which does not track the optimizer of a model
    Row("compiled-model-only", compiled_model_only, forms=("checkpoint",), expect="equal")

# Names and order

for kind in KINDS:
    forms = subclass_files(kind, ALL)
    Row(
        f"enc-dec-the-other-way-{kind}",
        of(kind, NAMED),
        of(kind, {"dec": "dec", "mid": "mid", "enc": "enc"}),
        forms,
        expect="equal" if kind != "subclassed" else "any",
    )
    Row(
        f"enc-dec-the-other-way-one-renamed-{kind}",
        of(kind, NAMED),
        of(kind, {"dec": "dec", "mid": "middle", "enc": "enc"}),
        forms,
    )
    Row(
        f"numbered-by-hand-the-other-way-{kind}",
        of(kind, {"x": "block_1", "y": "block_2", "z": "out"}),
        of(kind, {"y": "block_2", "x": "block_1", "z": "output"}),
        forms,
    )
    Row(f"one-renamed-{kind}", of(kind, NAMED), of(kind, {"enc": "enc", "mid": "middle", "dec": "dec"}), forms)
    Row(f"all-renamed-{kind}", of(kind, NAMED), of(kind, {"enc": "e", "mid": "m", "dec": "d"}), forms)
    Row(f"named-later-{kind}", of(kind, AUTOMATIC), of(kind, {"a": "x", "b": "y", "c": "z"}), forms)
    Row(f"automatic-shifted-{kind}", of(kind, AUTOMATIC), of(kind, AUTOMATIC, others=1), forms)
    Row(f"automatic-shifted-by-many-{kind}", of(kind, AUTOMATIC, others=2), of(kind, AUTOMATIC, others=8), forms)
    Row(f"automatic-partly-shifted-{kind}", of(kind, PARTLY), of(kind, PARTLY, others=1), forms)
    Row(f"automatic-made-in-another-order-{kind}", of(kind, AUTOMATIC), of(kind, AUTOMATIC, made="cab"), forms)
    Row(
        f"partly-made-in-another-order-{kind}", of(kind, PARTLY), of(kind, PARTLY, made=["b", "dec", "a", "enc"]), forms
    )
    Row(
        f"one-layer-more-in-front-{kind}",
        of(kind, AUTOMATIC),
        of(kind, {"new": None, **AUTOMATIC}),
        forms,
        expect="refused",
    )
    Row(
        f"one-layer-more-at-the-end-{kind}", of(kind, AUTOMATIC), of(kind, {**AUTOMATIC, "new": None}), forms, "refused"
    )
    Row(f"one-layer-less-{kind}", of(kind, AUTOMATIC), of(kind, {"b": None, "c": None}), forms)
    Row(f"model-renamed-{kind}", of(kind, NAMED, model_name="one"), of(kind, NAMED, model_name="two"), forms)

    # Names that a person has chosen, but that look like Keras's own
    like_automatic = {"a": "dense_1", "b": "dense_2", "c": "dense_3"}
    Row(
        f"hand-numbered-and-moved-on-{kind}",
        of(kind, like_automatic),
        of(kind, {"b": "dense_2", "c": "dense_3", "d": "dense_4"}),
        forms,
        "assumed",
    )
    Row(
        f"hand-numbered-one-left-out-{kind}",
        of(kind, like_automatic),
        of(kind, {"a": "dense_1", "c": "dense_3", "d": "dense_4"}),
        forms,
        # the attributes of a subclassed model may have got new names
        "refused" if kind != "subclassed" else "assumed",
    )

# Nothing but the attributes of a subclassed model tells two layers apart that Keras has named
Row(
    "two-automatic-swapped",
    of("subclassed", PARTLY),
    of("subclassed", {"enc": "enc", "b": None, "dec": "dec", "a": None}),
    ("checkpoint",),
)
Row(
    "hand-numbered-the-other-way-in-own-weights",
    of("functional", {"a": "dense_1", "b": "dense_2", "c": "dense_3"}),
    of("functional", {"c": "dense_3", "b": "dense_2", "a": "dense_1"}),
    ("own_weights",),
)
for label, optimizer in {"wrapped": wrapped, "bare": BARE}.items():
    Row(
        f"two-attributes-swapped-in-own-weights-{label}-optimizer",
        of("subclassed", {"a": None, "b": None}, optimizer=optimizer),
        of("subclassed", {"b": None, "a": None}, optimizer=optimizer),
        ("own_weights",),
        "equal",
    )

# Frozen layers

FIVE = {"a": "a", "b": "b", "c": "c", "d": "d", "e": "e"}
FIVE_AUTOMATIC = dict.fromkeys(FIVE)
for kind, (label, names) in itertools.product(KINDS, {"named": FIVE, "automatic": FIVE_AUTOMATIC}.items()):
    forms = subclass_files(kind, ALL)
    Row(f"frozen-b-then-e-{label}-{kind}", of(kind, names, frozen="b"), of(kind, names, frozen="e"), forms, "refused")
    Row(f"frozen-b-then-unfrozen-{label}-{kind}", of(kind, names, frozen="b"), of(kind, names), forms, "refused")
    Row(f"frozen-later-{label}-{kind}", of(kind, names), of(kind, names, frozen="c"), forms)
    Row(
        f"frozen-always-{label}-{kind}",
        of(kind, names, frozen="bd"),
        forms=forms,
        expect="equal",
        npz="equal" if label == "named" else "any",
    )

# Layers that are frozen or unfrozen between the last step and the save


def freeze(key, is_trainable=False):
    def change(program):
        program.first.parts[key].trainable = is_trainable

    return change


for kind, (label, names) in itertools.product(KINDS, {"named": FIVE, "automatic": FIVE_AUTOMATIC}.items()):
    forms = subclass_files(kind, ALL)
    Row(f"frozen-before-saving-{label}-{kind}", of(kind, names), forms=forms, then=freeze("b"))
    Row(
        f"frozen-before-saving-and-later-{label}-{kind}",
        of(kind, names),
        of(kind, names, frozen="b"),
        forms,
        then=freeze("b"),
    )
    Row(
        f"unfrozen-before-saving-{label}-{kind}",
        of(kind, names, frozen="b"),
        of(kind, names),
        forms,
        then=freeze("b", True),
    )

# Own loops

for kind, (label, order) in itertools.product(
    KINDS,
    {"reversed": lambda each: each[::-1], "biases-first": lambda each: each[1::2] + each[::2]}.items(),
):
    Row(f"own-loop-{label}-{kind}", of(kind, NAMED), forms=subclass_files(kind, ALL), expect="equal", order=order)
    Row(f"own-loop-{label}-automatic-{kind}", of(kind, AUTOMATIC), forms=subclass_files(kind, ALL), order=order)
Row("own-loop-a-part", of("functional", NAMED), forms=ALL, order=lambda each: each[2:4])

# Transfer learning and other shapes


def small_head():
    return dense("head", 2)


def large_head():
    return dense("head", 5)


for kind in KINDS:
    forms = subclass_files(kind, ALL)
    partial = {"options": {"partial": True}}
    with_head = {"enc": "enc", "mid": "mid", "head": "head"}
    Row(
        f"new-head-{kind}",
        of(kind, with_head, layers={"head": small_head}),
        of(kind, {"enc": "enc", "mid": "mid", "new": "new"}),
        forms,
        "partial",
        **partial,
    )
    Row(
        f"larger-head-{kind}",
        of(kind, with_head, layers={"head": small_head}),
        of(kind, with_head, layers={"head": large_head}),
        forms,
        "partial",
        **partial,
    )
    Row(
        f"larger-head-not-partial-{kind}",
        of(kind, with_head, layers={"head": small_head}),
        of(kind, with_head, layers={"head": large_head}),
        forms,
        "refused",
    )
    Row(
        f"automatic-head-{kind}",
        of(kind, {"a": None, "b": None, "head": None}, layers={"head": lambda: dense(None, 2)}),
        of(kind, {"a": None, "b": None, "new": None}, layers={"new": lambda: dense(None, 5)}),
        forms,
        "refused",
        **partial,
    )
    Row(
        f"wider-{kind}",
        of(kind, NAMED, layers={"dec": lambda: dense("dec", 2)}),
        of(kind, NAMED, layers={"dec": lambda: dense("dec", 4)}),
        forms,
        "refused",
        is_warm=True,
    )
    Row(
        f"partial-one-layer-more-in-front-{kind}",
        of(kind, AUTOMATIC),
        of(kind, {"new": None, **AUTOMATIC}),
        forms,
        "no swap",
        **partial,
    )
    Row(
        f"partial-enc-dec-the-other-way-one-renamed-{kind}",
        of(kind, NAMED),
        of(kind, {"dec": "dec", "mid": "middle", "enc": "enc"}),
        forms,
        "no swap",
        **partial,
    )

    Row(
        f"new-head-of-the-same-shape-{kind}",
        of(kind, NAMED),
        of(kind, {"enc": "enc", "mid": "mid", "new": "new"}),
        forms,
        "partial",
        **partial,
    )

if scenarios.accepts(scalekeeper.restore, "mapping"):
    for kind in ("sequential", "functional"):
        Row(
            f"mapping-one-renamed-the-other-way-{kind}",
            of(kind, {**NAMED, "end": "end"}),
            of(kind, {"dec": "dec", "end": "last", "mid": "middle", "enc": "enc"}),
            ("h5",),
            "equal",
            options=lambda made: {"mapping": {key: made.first.parts[key] for key in ("mid", "end")}},
        )

# Structure


def shared():
    layer, last = dense("shared"), dense("last")
    first, second = tf.keras.Input((3,)), tf.keras.Input((3,))
    outputs = last(tf.keras.layers.add([layer(first), layer(second)]))
    return scenarios.program(tf.keras.Model([first, second], outputs), {"shared": layer, "last": last}, wrapped())


def nested(
    inner_kind="functional",
    names=("one", "two"),
    inner_names=AUTOMATIC,
    *,
    called=(),
    made=(),
    inner_order=(),
    optimizer=wrapped,
):
    """A model of two models whose layers have the same names, or automatic ones.

    The models may be called, be made, or call their own layers in another order than the one of their names.
    """
    inners, models = {}, {}
    for name in made or names:
        inners[name] = {key: dense(inner_names[key]) for key in inner_order or inner_names}
        models[name] = model_of(inner_kind, inners[name], name)
    inputs = outputs = tf.keras.Input((3,))
    for name in called or names:
        outputs = models[name](outputs)
    parts = {f"{index}.{key}": inners[name][key] for index, name in enumerate(names) for key in inner_names}
    return scenarios.program(tf.keras.Model(inputs, outputs), parts, optimizer())


# Keras up to 2.3 cannot write two variables of one name to H5
WITHOUT_H5 = [form for form in ALL if form != "h5"]
Row("shared-layer", shared, expect="equal")
for inner in ("functional", "sequential"):
    Row(f"nested-{inner}", functools.partial(nested, inner), expect="equal")
    Row(
        f"nested-same-names-{inner}",
        functools.partial(nested, inner, inner_names={"x": "x", "y": "y"}),
        forms=WITHOUT_H5,
        expect="equal",
        npz="any",
    )
    same_names = functools.partial(nested, inner, inner_names={"x": "x", "y": "y"})
    for label, changes in {
        "called": {"called": ("two", "one")},
        "made": {"made": ("two", "one")},
        "made-and-called": {"made": ("two", "one"), "called": ("two", "one")},
        "inside": {"inner_order": ("y", "x")},
    }.items():
        Row(
            f"nested-same-names-{label}-in-another-order-{inner}",
            same_names,
            functools.partial(same_names, **changes),
            forms=WITHOUT_H5,
            # scalekeeper records the names of the inner models in its checkpoints
            expect="equal",
            npz="any",
        )
        Row(
            f"nested-same-names-{label}-in-another-order-bare-{inner}",
            functools.partial(same_names, optimizer=BARE),
            functools.partial(same_names, optimizer=BARE, **changes),
            forms=("checkpoint", "weights_tf"),
        )
        if label != "inside":  # which changes nothing that a program or a file could tell
            Row(
                f"nested-automatic-{label}-in-another-order-{inner}",
                functools.partial(nested, inner, inner_names={"x": None, "y": None}),
                functools.partial(nested, inner, inner_names={"x": None, "y": None}, **changes),
                # an .npz state has no names of inner models, and the layers have the same numbers in the same order
                forms=[form for form in ALL if form != "npz" or label != "made-and-called"],
            )
    Row(
        f"nested-same-names-bare-{inner}",
        functools.partial(same_names, optimizer=BARE),
        forms=("checkpoint", "weights_tf"),
    )
    Row(
        f"nested-same-names-checkpoint-restore-{inner}",
        same_names,
        forms=("checkpoint",),
        expect="equal",
        load=lambda target, path: natively(target, path),
        is_warm=True,
    )
    Row(
        f"nested-inner-renamed-{inner}",
        functools.partial(nested, inner),
        functools.partial(nested, inner, names=("first", "second")),
    )


NUMBERED = "_operations/{}" if IS_KERAS_3 else "layer_with_weights-{}"  # the position of a layer in a checkpoint
Row(
    "nested-same-names-mapping",
    functools.partial(nested, inner_names={"x": "x", "y": "y"}, optimizer=BARE),
    functools.partial(
        nested, inner_names={"x": "x", "y": "y"}, optimizer=BARE, called=("two", "one"), inner_order=("y", "x")
    ),
    forms=("checkpoint",),
    # the slots of Keras 2's new optimizers have nothing but the names of their variables
    # and up to TF 2.2 there are names with numbers instead of the positions
    expect="any" if (HAS_NEW_OPTIMIZERS and not IS_KERAS_3) or numbers_chosen_names() else "equal",
    options=lambda made: {
        "mapping": {
            NUMBERED.format(index + IS_KERAS_3): made.first.model.get_layer(name)
            for index, name in enumerate(("one", "two"))
        }
    },
)


def towers(names=("user", "item"), called=("user", "item"), has_frozen=False, optimizer=wrapped):
    """Two models of equal layers, made by one function, that share a third one, and a layer after them."""

    def tower(name, inner):
        inputs = outputs = tf.keras.Input((3,))
        parts[f"{name}.fc1"], parts[f"{name}.fc2"] = dense("fc1"), dense("fc2")
        for layer in (parts[f"{name}.fc1"], *([inner] if inner else []), parts[f"{name}.fc2"]):
            outputs = layer(outputs)
        return tf.keras.Model(inputs, outputs, name=name)

    parts = {}
    common = tower("common", None)
    models = {name: tower(name, common) for name in names}
    models["item"].get_layer("fc1").trainable = not has_frozen
    inputs = [tf.keras.Input((3,)) for _ in called]
    parts["head"] = dense("fc1")
    outputs = parts["head"](tf.keras.layers.add([models[name](each) for name, each in zip(called, inputs)]))
    ordered = {key: parts[key] for key in sorted(parts)}
    return scenarios.program(tf.keras.Model(inputs, outputs), ordered, optimizer())


for label, changes in {
    "same": {},
    "called-the-other-way": {"called": ("item", "user")},
    "made-the-other-way": {"names": ("item", "user")},
    "both-the-other-way": {"called": ("item", "user"), "names": ("item", "user")},
    "frozen": {"has_frozen": True},
}.items():
    first = {"has_frozen": True} if label == "frozen" else {}
    Row(
        f"towers-{label}",
        functools.partial(towers, **first),
        functools.partial(towers, **changes),
        forms=("checkpoint", "saved_model", "npz"),
        npz="any",
        expect="equal",
    )
    Row(
        f"towers-{label}-keras",
        functools.partial(towers, **first),
        functools.partial(towers, **changes),
        forms=("keras",),
        # Keras 2 gives a model that is in two others two paths
        expect="equal" if IS_KERAS_3 else "any",
    )
    Row(
        f"towers-{label}-weights",
        functools.partial(towers, **first),
        functools.partial(towers, **changes),
        forms=("weights",) if IS_KERAS_3 else (),  # Keras 2 writes no names of layers there
    )
    Row(
        f"towers-{label}-bare",
        functools.partial(towers, optimizer=BARE, **first),
        functools.partial(towers, optimizer=BARE, **changes),
        forms=("checkpoint",),
    )


def converted(target, path, **options):
    """Convert a checkpoint for the installed TensorFlow, and restore the result."""
    scalekeeper.convert(path, path + ".converted", format="checkpoint", allow_loss=True)
    return scenarios.restore(target, path + ".converted", **options)


Row(
    "converted-towers",
    towers,
    functools.partial(towers, called=("item", "user")),
    forms=("checkpoint",),
    expect="equal",
    load=converted,
)


def on_sequences(called=("one", "two"), made=("one", "two"), optimizer=wrapped):
    """Two models with layers of the same names, each in a TimeDistributed layer."""
    parts, layers = {}, {}
    for name in made:
        own = {key: dense(key) for key in ("x", "y")}
        parts.update({f"{name}.{key}": layer for key, layer in own.items()})
        layers[name] = tf.keras.layers.TimeDistributed(model_of("functional", own, name), name=f"each_{name}")
    inputs = outputs = tf.keras.Input((4, 3))
    for name in called:
        outputs = layers[name](outputs)
    ordered = {key: parts[key] for key in sorted(parts)}
    return scenarios.program(tf.keras.Model(inputs, outputs), ordered, optimizer())


for label, changes in {
    "same": {},
    "called-the-other-way": {"called": ("two", "one")},
    "both-the-other-way": {"called": ("two", "one"), "made": ("two", "one")},
}.items():
    Row(
        f"models-in-layers-{label}",
        on_sequences,
        functools.partial(on_sequences, **changes),
        forms=("checkpoint", "saved_model", "npz"),
        expect="equal",
        npz="any",
    )
    Row(f"models-in-layers-{label}-keras", on_sequences, functools.partial(on_sequences, **changes), forms=("keras",))
    Row(
        f"models-in-layers-{label}-bare",
        functools.partial(on_sequences, optimizer=BARE),
        functools.partial(on_sequences, optimizer=BARE, **changes),
        forms=("checkpoint", "saved_model", "plain_keras"),
    )
    Row(
        f"models-in-layers-{label}-weights",
        on_sequences,
        functools.partial(on_sequences, **changes),
        forms=("weights",) if IS_KERAS_3 else (),  # Keras 2 writes no names of layers there
    )


def normalized(kind, frozen=(), order=("x", "n", "y", "m")):
    layers = {"n": tf.keras.layers.BatchNormalization, "m": tf.keras.layers.BatchNormalization}
    return chain(kind, dict.fromkeys(order), layers=layers, frozen=frozen)


for kind in KINDS:
    forms = subclass_files(kind, ALL)
    Row(f"batch-norm-{kind}", functools.partial(normalized, kind), forms=forms, expect="equal")
    Row(
        f"batch-norm-frozen-later-{kind}",
        functools.partial(normalized, kind),
        functools.partial(normalized, kind, frozen="n"),
        forms,
    )
    Row(
        f"batch-norm-unfrozen-later-{kind}",
        functools.partial(normalized, kind, frozen="n"),
        functools.partial(normalized, kind),
        forms,
        "refused",
    )


class Blocks(tf.keras.Model):
    """Layers in a list and in a mapping, and a weight of the model itself."""

    def __init__(self, names=(None, None, None), is_reversed=False, heads=("left", "right")):
        super().__init__()
        self.blocks = [dense(name) for name in names]
        self.heads = {key: dense() for key in heads}
        self.is_reversed = is_reversed

    def build(self, shape):
        self.gain = self.add_weight(name="gain", shape=(3,), initializer="ones")
        super().build(shape)

    def call(self, inputs):
        for block in self.blocks[::-1] if self.is_reversed else self.blocks:
            inputs = block(inputs)
        return self.heads["left"](inputs) + self.heads["right"](inputs) * self.gain

    def parts(self):
        found = {str(index): block for index, block in enumerate(self.blocks)}
        return {**found, **{key: self.heads[key] for key in self.heads}, "gain": self.gain}


def blocks(others=0, **options):
    for _ in range(others):
        dense()(tf.zeros((1, 3)))
    model = scenarios.called(Blocks(**options))
    return scenarios.program(model, model.parts(), wrapped())


class Halves(tf.keras.Model):
    """Two models of equal layers in attributes, and two lists of layers."""

    def __init__(self, order=("encoder", "decoder", "ups", "downs")):
        super().__init__()
        for name in order:
            if name.endswith("s"):
                setattr(self, name, [dense(), dense()])
            else:
                setattr(self, name, tf.keras.Sequential([dense(), dense()]))

    def call(self, inputs):
        outputs = self.decoder(self.encoder(inputs))
        for layer in (*self.downs, *self.ups):
            outputs = layer(outputs)
        return outputs

    def get_config(self):
        return {}


def halves(order=("encoder", "decoder", "ups", "downs"), others=0):
    for _ in range(others):
        tf.keras.Sequential([dense()])
    model = scenarios.called(Halves(order))
    lists = {name: getattr(model, name) for name in ("ups", "downs")}
    lists.update({name: getattr(model, name).layers for name in ("encoder", "decoder")})
    parts = {f"{name}.{index}": layer for name, layers in lists.items() for index, layer in enumerate(layers)}
    return scenarios.program(model, parts, wrapped())


for label, changes in {
    "same": {},
    "shifted": {"others": 2},
    "made-in-another-order": {"order": ("downs", "decoder", "ups", "encoder")},
}.items():
    Row(
        f"models-in-attributes-{label}",
        halves,
        functools.partial(halves, **changes),
        forms=("checkpoint", "keras", "saved_model"),
        expect="any" if IS_KERAS_3 else "equal",  # whose checkpoints do not track lists
    )
    Row(
        f"models-in-attributes-{label}-without-attributes",
        halves,
        functools.partial(halves, **changes),
        forms=("npz", "weights", "plain_keras"),
        expect="assumed",  # nothing in these files tells the attributes
    )


def both_directions(others=0):
    """Two bidirectional layers, whose inner layers have equal shapes."""
    for _ in range(others):
        tf.keras.layers.SimpleRNN(2)
    inputs = outputs = tf.keras.Input((4, 3))
    parts = {}
    for key in ("one", "two"):
        layer = tf.keras.layers.Bidirectional(
            tf.keras.layers.SimpleRNN(3, return_sequences=True), merge_mode="sum", name=None
        )
        outputs = layer(outputs)
        parts.update({key + "-forward": layer.forward_layer, key + "-backward": layer.backward_layer})
    return scenarios.program(tf.keras.Model(inputs, outputs), parts, wrapped())


def attention(others=0, names=(None, None)):
    """Two attention layers, whose inner layers have equal shapes."""
    for _ in range(others):
        tf.keras.layers.MultiHeadAttention(1, 1)
    inputs = outputs = tf.keras.Input((4, 3))
    parts = {}
    for key, name in zip(("one", "two"), names):
        layer = tf.keras.layers.MultiHeadAttention(1, 3, name=name)
        outputs = layer(outputs, outputs)
        parts.update(
            {f"{key}-{each}": getattr(layer, f"_{each}_dense") for each in ("query", "key", "value", "output")}
        )
    return scenarios.program(tf.keras.Model(inputs, outputs), parts, wrapped())


Row("bidirectional", both_directions, expect="equal")
Row("bidirectional-shifted", both_directions, functools.partial(both_directions, others=2))
if hasattr(tf.keras.layers, "MultiHeadAttention"):
    Row("attention", attention, expect="equal")
    Row("attention-shifted", attention, functools.partial(attention, others=2))
    Row("attention-named", functools.partial(attention, names=("p", "q")), expect="equal")
    Row(
        "attention-renamed",
        functools.partial(attention, names=("p", "q")),
        functools.partial(attention, names=("p", "r")),
    )


def combined(is_named=False):
    """The classic GAN of Keras: a frozen discriminator inside the model that trains the generator."""
    models = {
        name: {key: dense(f"{name}_{key}" if is_named else None) for key in ("x", "y")}
        for name in ("generator", "discriminator")
    }
    inputs = tf.keras.Input((3,))
    inner = {name: model_of("functional", layers, name) for name, layers in models.items()}
    inner["discriminator"].trainable = False
    parts = {f"{name}.{key}": layer for name, layers in models.items() for key, layer in layers.items()}
    model = tf.keras.Model(inputs, inner["discriminator"](inner["generator"](inputs)))
    return scenarios.program(model, parts, wrapped())


for is_named in (False, True):
    Row(
        f"gan-in-one-model-{'named' if is_named else 'automatic'}",
        functools.partial(combined, is_named),
        expect="equal",
        npz="equal" if is_named else "any",
    )


def optimizer_alone(names=NAMED, **options):
    """A checkpoint of the optimizer without the model."""
    whole = chain("functional", names, **options)
    return Program(whole.units, {"optimizer": whole.first.optimizer})


for label, order in {"in-order": list, "reversed": lambda each: each[::-1]}.items():
    Row(
        f"optimizer-alone-{label}",
        optimizer_alone,
        forms=("checkpoint",),
        order=order,
        only=["slot", "optimizer"],
    )
    Row(
        f"optimizer-alone-{label}-frozen",
        functools.partial(optimizer_alone, frozen=["enc"]),
        functools.partial(optimizer_alone, frozen=["dec"]),
        forms=("checkpoint",),
        expect="refused",
        order=order,
        only=["slot", "optimizer"],
    )

BLOCK_FORMS = ("checkpoint", "keras", "npz", "saved_model")
Row("layers-in-lists", blocks, forms=BLOCK_FORMS, expect="equal")
Row("layers-in-lists-shifted", blocks, functools.partial(blocks, others=1), forms=BLOCK_FORMS)
Row(
    "layers-in-lists-named",
    functools.partial(blocks, names=("p", "q", "r")),
    functools.partial(blocks, names=("p", "q", "r"), others=3),
    forms=BLOCK_FORMS,
)
Row(
    "layers-in-lists-called-in-another-order",
    blocks,
    functools.partial(blocks, is_reversed=True),
    forms=BLOCK_FORMS,
)
if not IS_KERAS_3:  # whose checkpoints and files have positions instead of the keys of a dictionary
    Row(
        "layers-in-dicts-in-another-order",
        blocks,
        functools.partial(blocks, heads=("right", "left")),
        forms=("checkpoint", "saved_model"),
    )
Row(
    "layers-in-dicts-in-another-order-recorded",
    blocks,
    functools.partial(blocks, heads=("right", "left")),
    # an H5 file of weights of older versions leaves out the variables of the model itself
    forms=("keras", *(("own_weights",) if WRITES_KERAS_FILES else ())),
    expect="equal",
)
Row(
    "layers-in-dicts-in-another-order-in-files-of-keras",
    blocks,
    functools.partial(blocks, heads=("right", "left")),
    forms=("plain_keras", "weights"),
    expect="assumed",
)

# The optimizer of the target

for label, names in {"named": NAMED, "automatic": AUTOMATIC}.items():
    source = of("functional", names)
    Row(f"uncompiled-{label}", source, of("functional", names, optimizer=None), FILES)
    Row(f"bare-target-{label}", source, of("functional", names, optimizer=BARE), FILES)
    Row(f"bare-source-{label}", of("functional", names, optimizer=BARE), source, FILES)
    Row(f"bare-both-{label}", of("functional", names, optimizer=BARE), forms=FILES, expect="equal")
    Row(
        f"bare-both-shifted-{label}",
        of("functional", names, optimizer=BARE),
        of("functional", names, optimizer=BARE, others=1),
        forms=FILES,
    )
    Row(
        f"fixed-target-{label}",
        source,
        of("functional", names, optimizer=functools.partial(wrapped, loss_scale=128)),
    )
    Row(
        f"other-policy-{label}",
        source,
        of("functional", names, optimizer=functools.partial(wrapped, loss_scale="log_max")),
    )
    Row(
        f"other-optimizer-{label}",
        source,
        of("functional", names, optimizer=lambda: wrapped(tf.keras.optimizers.SGD(0.1, momentum=0.9))),
        expect="refused",
    )
    Row(
        f"sgd-without-momentum-{label}",
        of("functional", names, optimizer=lambda: wrapped(tf.keras.optimizers.SGD(0.1))),
        expect="equal",
    )
    Row(
        f"rmsprop-with-momentum-{label}",
        of(
            "functional",
            names,
            optimizer=lambda: wrapped(tf.keras.optimizers.RMSprop(0.1, momentum=0.9, centered=True)),
        ),
        expect="equal",
    )
    if HAS_NEW_OPTIMIZERS:
        averaging = of("functional", names, optimizer=lambda: wrapped(tf.keras.optimizers.Adam(0.01, use_ema=True)))
        Row(f"moving-averages-{label}", averaging, expect="equal")
        Row(f"moving-averages-not-in-the-file-{label}", source, averaging, expect="refused")

# Two reasons at once: a variable fewer is trained, and names have shifted
Row(
    "frozen-and-shifted",
    of("functional", AUTOMATIC, frozen="a"),
    of("functional", AUTOMATIC, frozen="c", others=1),
    ALL,
    "refused",
)

# Keras's own ways of saving

PLAIN = (
    "plain_h5",
    "plain_keras",
    "plain_saved_model",
    "weights",
    "weights_tf",
    "model_checkpoint",
    "model_checkpoint_weights",
)
for kind, (label, names) in itertools.product(KINDS, {"named": NAMED, "automatic": AUTOMATIC}.items()):
    Row(f"keras-saves-{label}-{kind}", of(kind, names), forms=subclass_files(kind, PLAIN))
    Row(f"keras-saves-shifted-{label}-{kind}", of(kind, names), of(kind, names, others=1), subclass_files(kind, PLAIN))
    Row(
        f"keras-saves-frozen-{label}-{kind}",
        of(kind, names, frozen=list(names)[:1]),
        of(kind, names, frozen=list(names)[-1:]),
        subclass_files(kind, PLAIN),
        "refused",
    )


# Loading whole models


def loaded(target, path, scope=None):
    """scalekeeper.load_model; the layers of the result by name."""
    del target
    objects = {"Chain": scenarios.Chain, "Blocks": Blocks}
    with scope() if scope else tf.name_scope(""):
        model = scalekeeper.load_model(path, custom_objects=objects)
    return Program({"": scenarios.Unit(model, parts_by_name(model), model.optimizer)}, {})


def parts_by_name(model):
    """Layers by name, those of nested models after their model's."""
    found = {}
    for layer in model.layers:
        if hasattr(layer, "layers"):
            found.update({f"{layer.name}.{key}": each for key, each in parts_by_name(layer).items()})
        elif layer.weights:
            found[layer.name] = layer
    return found


def by_name(make):
    """The same program with its layers by name."""
    made = make()
    each = made.first
    return made._replace(units={"": each._replace(parts=parts_by_name(each.model))})


def mirrored():
    return tf.distribute.MirroredStrategy(["/cpu:0"]).scope()


LOADS = {
    "named": of("functional", NAMED),
    "automatic": of("sequential", AUTOMATIC),
    "frozen": of("functional", FIVE, frozen="b"),
    "batch-norm": functools.partial(normalized, "functional", frozen="n"),
    "nested": functools.partial(nested, inner_names={"x": None, "y": None}),
    "shared": shared,
    "bare": of("functional", NAMED, optimizer=BARE),
    "subclassed": of("subclassed", NAMED),
    "subclassed-automatic": of("subclassed", AUTOMATIC),
}
if HAS_NEW_OPTIMIZERS:
    LOADS["moving-averages"] = averaging
for label, make in LOADS.items():
    again = functools.partial(by_name, make)
    files = subclass_files(label.split("-")[0], MODEL_FILES)
    Row(f"load-model-{label}", again, forms=files, expect="equal", load=loaded)
    Row(
        f"load-model-own-loop-{label}",
        again,
        forms=files,
        expect="any" if label == "bare" else "equal",
        load=loaded,
        order=lambda each: each[::-1],
    )
    Row(f"load-model-plain-{label}", again, forms=subclass_files(label.split("-")[0], PLAIN[:3]), load=loaded)
for label in ("named", "batch-norm"):
    again = functools.partial(by_name, LOADS[label])
    Row(
        f"load-model-in-scope-{label}",
        again,
        forms=MODEL_FILES,
        expect="equal",
        load=functools.partial(loaded, scope=mirrored),
    )


def in_scope(make):
    with mirrored():
        return make()


for label, names in {"named": NAMED, "automatic": AUTOMATIC}.items():
    source = of("functional", names)
    Row(f"restore-in-scope-{label}", source, functools.partial(in_scope, source), expect="equal")
    Row(f"saved-in-scope-{label}", functools.partial(in_scope, source), source, expect="equal")


# Keras and TensorFlow restore what the LossScaleOptimizer gave them


def natively(target, path):
    tf.train.Checkpoint(**target.tracked).restore(path).assert_existing_objects_matched()
    return []


def load_weights(target, path):
    target.first.model.load_weights(path)
    return []


for kind in KINDS:
    Row(
        f"checkpoint-restore-{kind}",
        of(kind, AUTOMATIC),
        of(kind, AUTOMATIC, others=1),
        ("checkpoint",),
        "equal",
        load=natively,
        is_warm=True,
    )
    Row(
        f"checkpoint-restore-frozen-{kind}",
        of(kind, NAMED, frozen=["mid"]),
        forms=("checkpoint",),
        expect="equal",
        load=natively,
        is_warm=True,
    )
    if kind != "subclassed" and WRITES_KERAS_FILES:
        Row(
            f"load-weights-{kind}",
            of(kind, NAMED),
            forms=("weights",),
            expect="equal",
            load=load_weights,
            only=["weight"],
        )
Row("checkpoint-restore-two-optimizers", both, forms=("checkpoint",), expect="equal", load=natively, is_warm=True)


# float16


def in_half_precision(make):
    set_global_policy("mixed_float16")
    try:
        return make()
    finally:
        set_global_policy("float32")


for label, names in {"named": NAMED, "automatic": AUTOMATIC}.items():
    half = functools.partial(in_half_precision, of("functional", names))
    # TF 2.0 cannot write such a SavedModel, and the versions up to 2.3 share the cases of the fast run
    lacks_saved_model = tf.__version__.startswith(("2.0.",) if READS_ALL else ("2.0.", "2.1.", "2.2.", "2.3."))
    forms = [form for form in ALL if form != "saved_model" or not lacks_saved_model]
    Row(f"mixed-float16-{label}", half, forms=forms, expect="equal")
    Row(f"mixed-float16-to-float32-{label}", half, of("functional", names), forms, expect="equal")


VARIANTS = "-(sequential|functional|subclassed|named|automatic|partly)(?![a-z])(?!-to)"
CASES = [(row, form) for row in ROWS for form in row.forms]
if not READS_ALL:
    # one case of each scenario: names, kinds of models and formats take turns, and are others in another generation
    scenarios_by_name = {}
    for row, form in CASES:
        scenarios_by_name.setdefault(re.sub(VARIANTS, "", row.name), []).append((row, form))
    turn = 3 if IS_KERAS_3 else sum([not HAS_LOSS_SCALE_OBJECTS, HAS_NEW_OPTIMIZERS])
    CASES = [each[(index + turn) % len(each)] for index, each in enumerate(scenarios_by_name.values())]


def outcome(row, form, folder):
    """Run a case; return its result and whether it is acceptable."""
    result = scenarios.run(row.source, row.target, form, folder, **row.options)
    accepted = {
        "equal": ("equal",),
        "any": ("equal", "refused", "reported"),
        "refused": ("refused", "reported"),
        "partial": ("reported",),
        "no swap": ("equal", "refused", "reported"),
        "assumed": ("equal", "refused", "reported", "assumed"),
    }[row.npz if form == "npz" else row.expect]
    return result, result.outcome in accepted


@pytest.mark.whole
@pytest.mark.parametrize(("row", "form"), CASES, ids=[f"{row.name}-{form}" for row, form in CASES])
def test_a_program_restores_to_the_bit_or_is_refused(row, form, tmp_path):
    """No value is swapped, left out or changed in silence."""
    result, is_right = outcome(row, form, str(tmp_path))
    assert is_right, result
