"""Whole documents: what they mean, and what is said of wrong ones."""

import json
import pickle

import pytest

from scalekeeper import DocumentError, InvalidSpecError, load_document


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a document into an empty folder and load it by its bare name, so that messages are short."""
    monkeypatch.chdir(tmp_path)

    def write_and_load(text, name="train.yaml", **options):
        data = text if isinstance(text, bytes) else text.encode("utf-8")
        (tmp_path / name).write_bytes(data)
        return load_document(name, **options)

    return write_and_load


def error_of(write, *args, **options):
    with pytest.raises(DocumentError) as caught:
        write(*args, **options)
    return str(caught.value)


TEXT = """\
optimizer:
  name: adam
  learning_rate: {schedule: exponential_decay, initial_learning_rate: 0.001, decay_steps: 1000, decay_rate: 0.9}
loss_scale: {name: dynamic, initial_loss_scale: 4096, increment_period: 500}
"""


def test_what_a_document_means(write):
    """The optimizer with its arguments and its schedule, the loss scale as an object."""
    document = write(TEXT, target="2.3")
    rate = document.optimizer.arguments["learning_rate"]
    assert (document.optimizer.name, document.optimizer.class_path) == ("adam", "optimizers.Adam")
    assert (rate.name, rate.class_path) == ("exponential_decay", "optimizers.schedules.ExponentialDecay")
    assert rate.arguments == {"initial_learning_rate": 0.001, "decay_steps": 1000, "decay_rate": 0.9}
    assert document.loss_scale.state() == {"current_loss_scale": 4096.0, "good_steps": 0}
    assert document.target.name == "2.3"


def test_what_a_document_keeps_an_eye_on(write):
    """The options of monitoring stand beside the optimizer; without them nothing is asked for."""
    watched = write(TEXT + "stop_after_skips: 100\nattribute_overflows: true\nwatch: [zero_share]\n").monitoring
    assert watched.said() == {"stop_after_skips": 100, "attribute_overflows": True, "watch": ["zero_share"]}
    assert write(TEXT).monitoring.said() == {}


def test_wrong_monitoring_is_pointed_at(write):
    """Each problem has its place in the text, what was given and what is allowed."""
    error = error_of(write, TEXT + "stop_after_skips: 0\nwatch: [zeros]\nattribute_overflows: 1\n")
    assert "train.yaml:5:19: stop_after_skips: 0 must be greater than or equal to 1" in error
    assert "train.yaml:6:9: watch[0]: 'zeros' must be 'largest_magnitude' or 'zero_share'" in error
    assert "train.yaml:7:22: attribute_overflows: 1 must be a boolean" in error


def test_json_and_yaml_mean_the_same(write):
    """The same document in JSON, with a key for the editor's schema."""
    data = {
        "$schema": "train.schema.json",
        "optimizer": {
            "name": "Adam",
            "learning_rate": {
                "schedule": "ExponentialDecay",
                "initial_learning_rate": 0.001,
                "decay_steps": 1000,
                "decay_rate": 0.9,
            },
        },
        "loss_scale": {"name": "dynamic", "initial_loss_scale": 4096, "increment_period": 500},
    }
    assert write(json.dumps(data, indent="\t"), "train.json").optimizer == write(TEXT).optimizer


def test_short_forms(write):
    """A bare optimizer name; a number; and dynamic where no loss scale is said."""
    document = write("optimizer: sgd\nloss_scale: 128")
    assert (document.optimizer.arguments, document.loss_scale()) == ({}, 128.0)
    assert write("optimizer: sgd").loss_scale() == 32768.0


def test_only_what_was_written_is_passed_on(write):
    """Defaults are left to the TensorFlow that runs it."""
    assert write("optimizer: {name: sgd, momentum: 1}").optimizer.arguments == {"momentum": 1.0}


def test_a_mapping_will_do():
    """Without a file, problems are told by their path."""
    assert load_document({"optimizer": "sgd", "loss_scale": 128}).loss_scale() == 128.0
    with pytest.raises(InvalidSpecError, match=r"optimizer\.learning_rate: '0.1' must be a number"):
        load_document({"optimizer": {"name": "sgd", "learning_rate": "0.1"}})


def test_an_error_in_yaml_looks_like_a_compilers(write):
    """file:line:column, the path, the matter, the line, the caret."""
    assert error_of(write, "optimizer: sgd\nloss_scale: {name: dynamic, multiplier: 1}\n") == (
        "train.yaml:2:41: loss_scale.multiplier: 1 must be greater than 1\n"
        "   2 | loss_scale: {name: dynamic, multiplier: 1}\n"
        "     |                                         ^"
    )


def test_an_error_in_json_looks_the_same(write):
    """file:line:column, the path, the matter, the line, the caret."""
    assert error_of(
        write, '{"optimizer": "sgd",\n "loss_scale": {"name": "dynamic", "multiplyer": 3}}', "train.json"
    ) == (
        "train.json:2:36: loss_scale.multiplyer: unknown parameter 'multiplyer' of dynamic; did you mean 'multiplier'? "
        "Valid: initial_loss_scale, increment_period, multiplier, minimum, maximum, growth_factor, backoff_factor, "
        "hysteresis, refill, refill_on_backoff.\n"
        '   2 |  "loss_scale": {"name": "dynamic", "multiplyer": 3}}\n'
        "     |                                    ^^^^^^^^^^^^"
    )


def test_everything_wrong_is_found_at_once_in_order(write):
    """One run shows all there is to mend, from top to bottom."""
    with pytest.raises(DocumentError) as caught:
        write("loss_scale: null\noptimizer: {name: adam, lr: 1}\noptimiser: 1\n")
    assert [(finding.place, finding.problem.path) for finding in caught.value.findings] == [
        ((1, 13), ("loss_scale",)),
        ((2, 25), ("optimizer", "lr")),
        ((3, 1), ("optimiser",)),
    ]
    assert pickle.loads(pickle.dumps(caught.value)).findings == caught.value.findings


@pytest.mark.parametrize(
    ("argument", "accepting", "refusing"),
    [
        ("decay: 0.1", ("2.0", "2.10"), ("2.11", "2.15", "2.21", "tf_keras")),
        ("weight_decay: 0.1", ("2.11", "2.15", "2.21", "tf_keras"), ("2.0", "2.9", "2.10")),
        ("jit_compile: true", ("2.11", "2.15", "tf_keras"), ("2.0", "2.10", "2.16", "2.21")),
        ("global_clipnorm: 1", ("2.4", "2.21"), ("2.0", "2.3")),
        ("gradient_accumulation_steps: 2", ("2.16", "2.21"), ("2.0", "2.15", "tf_keras")),
        ("clipnorm: 1", ("2.0", "2.10", "2.15", "tf_keras", "2.21"), ()),
    ],
)
def test_targets_differ_where_they_should(write, argument, accepting, refusing):
    """An argument is known exactly on the TensorFlows whose constructors take it."""
    text = "optimizer: {name: adam, " + argument + "}"
    for name in accepting:
        assert write(text, target=name).optimizer.name == "adam"
    for name in refusing:
        assert "unknown parameter" in error_of(write, text, target=name)


def test_an_argument_of_another_target_says_which(write):
    """The error says where the argument would be known."""
    message = error_of(write, "optimizer: {name: adam, decay: 0.1}", target="2.21")
    assert "The target here is 2.21-keras3; on 2.0 to 2.10 it is there." in message


@pytest.mark.parametrize(
    ("name", "accepting", "refusing"),
    [
        ("adamw", ("2.12", "2.21", "tf_keras"), ("2.0", "2.11")),
        ("legacy.adam", ("2.10", "2.15", "tf_keras"), ("2.0", "2.21")),
        ("experimental.adam", ("2.10", "2.15"), ("2.0", "2.9", "2.21")),
        ("lion", ("2.13", "2.21"), ("2.12",)),
        ("muon", ("2.21",), ("tf_keras",)),
    ],
)
def test_optimizers_differ_too(write, name, accepting, refusing):
    """An optimizer is known exactly where its class is."""
    for each in accepting:
        assert write("optimizer: " + name, target=each).optimizer.name == name
    for each in refusing:
        assert "unknown optimizer" in error_of(write, "optimizer: " + name, target=each)


def test_clippings_that_exclude_each_other(write):
    """Where the constructor refuses two clippings at once, so does the check; null is as good as nothing."""
    both = "optimizer: {name: adam, clipnorm: 1, clipvalue: 1}"
    assert write(both, target="2.0").optimizer.arguments == {"clipnorm": 1.0, "clipvalue": 1.0}
    assert "clipnorm and clipvalue can't be given together" in error_of(write, both, target="2.21")
    assert write("optimizer: {name: adam, clipnorm: null, clipvalue: 1}", target="2.21").optimizer.name == "adam"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", "a document is a mapping with the key 'optimizer', not []"),
        ("5", "a document is a mapping with the key 'optimizer', not 5"),
        ("{}", "the key 'optimizer' is missing"),
        ("optimizer: 5", "5 is not an optimizer"),
        ("optimizer: null", "None is not an optimizer"),
        ("optimizer: []", "[] is not an optimizer"),
        ("optimizer: {}", "optimizer needs 'name'"),
        ("optimizer: {name: [1]}", "unknown optimizer [1]"),
        ("optimizer: adm", "unknown optimizer 'adm'; did you mean 'adam'?"),
        ("optimizer: ADAM", "unknown optimizer 'ADAM'; did you mean 'adam'?"),
        ("optimizer: {name: sgd, nesterov: yes}", "'yes' must be a boolean: write true"),
        ("optimizer: {name: sgd, nesterov: 'no'}", "'no' must be a boolean: write false"),
        ("optimizer: {name: sgd, nesterov: 'true'}", "'true' must be a boolean: write true without quotes"),
        ("optimizer: {name: sgd, momentum: '0.5'}", "'0.5' must be a number: write 0.5 without quotes"),
        ("optimizer: {name: sgd, learning_rate: 1/1000}", "learning_rate: '1/1000' must be a number: write 0.001"),
        ("optimizer: sgd\nloss_scale: 2**15", "2:13: loss_scale: '2**15' is not the name of a loss scale: write 32768"),
        ("optimizer: sgd\nloss_scale: 32_768", "'32_768' is not the name of a loss scale: write 32768."),
        ("optimizer: sgd\nloss_scale: {name: dynamic, minimum: 2^-3}", "'2^-3' must be a number: write 0.125"),
        ("optimizer: sgd\nloss_scale: Dynamic", "2:13: loss_scale: unknown loss scale 'Dynamic'; did you mean 'dyn"),
        ("optimizer: sgd\nloss_scale: TolerantLossScale", "did you mean 'tolerant'?"),
        ("optimizer: sgd\nwatch: zero_share", "2:8: watch: 'zero_share' must be a list: write [zero_share]"),
        ("optimizer: sgd\nskipped_steps: Hold", "'Hold' is not possible; did you mean 'hold'? Valid: native, "),
        ("optimizer:\n\tname: sgd", "2:1: YAML does not allow tabs for indentation; use spaces"),
        ("optimizer:\n  name: sgd\n  \tmomentum: 0.5", "3:3: YAML does not allow tabs for indentation; use spaces"),
        ("optimizer:sgd", "a colon and a space are between key and value: 'optimizer: sgd'"),
        ("optimizer = sgd", "a colon and a space are between key and value: 'optimizer: sgd'"),
        ("optimizer: {name: sgd, momentum: 2}", "2 must be less than or equal to 1"),
        ("optimizer: {name: sgd, learning_rate: -1}", "-1 must be greater than or equal to 0"),
        ("optimizer: {name: sgd, learning_rate: []}", "[] must be a number"),
        ("optimizer: {name: sgd, learning_rate: {}}", "learning-rate schedule needs 'schedule'"),
        ("optimizer: {name: sgd, learning_rate: {schedule: x}}", "unknown learning-rate schedule 'x'"),
        ("optimizer: {name: sgd, learning_rate: {schedule: cosine_decay}}", "needs 'initial_learning_rate'"),
        ("optimizer: {name: adam, loss_scale_factor: 2}", "The loss scale is given by the document's 'loss_scale'."),
        ("optimizer: {name: adam, epsilon: .inf}", "inf must be a finite number"),
        ("optimizer: sgd\nloss_scale: 0.5", "0.5 must be greater than or equal to 1"),
        ("optimizer: sgd\nloss_scale: .nan", "nan must be a finite number"),
        ("optimizer: sgd\nloss_scale: '128'", "A number is written without quotes"),
        ("optimizer: sgd\nloss_scale: true", "True is not a loss scale"),
        ("optimizer: sgd\nloss_scale: 1e39", "must not be larger than float32 can hold"),
        ("optimizer: sgd\nloss_scale: fixed", "fixed needs 'loss_scale_value', which is not given"),
        ("optimizer: sgd\nloss_scale: os:system", "importing 'os:system' is not allowed"),
        ("optimizer: sgd\n$schema: 5", "$schema: 5 must be a string"),
        ("optimizer: sgd\nskipped_steps: no", "skipped_steps: 'no' is not possible; valid: native, advance, hold"),
        ("optimizer: sgd\nskipped_steps: [hold]", "['hold'] is not possible"),
        (b"\xff\xfe", "not UTF-8 text: byte 0xff"),
        (b"optimizer: \xe9", "train.yaml:1:12: not UTF-8 text: byte 0xe9"),
        (b"", "the document is empty"),
        (b"\x00\x01\x02", "the character U+0000 is not allowed"),
    ],
)
def test_wrong_documents(write, text, expected):
    """Each says what was given and what is allowed."""
    assert expected in error_of(write, text, target="2.21")


def test_piecewise_rules(write):
    """One more value than boundaries, and boundaries that grow."""
    form = "optimizer: {{name: sgd, learning_rate: {{schedule: piecewise_constant_decay, boundaries: {}, values: {}}}}}"
    assert write(form.format([1, 5], [1, 2, 3])).optimizer.name == "sgd"
    assert "2 boundaries need 3 values, but 2 are given" in error_of(write, form.format([1, 5], [1, 2]))
    assert "boundaries must grow" in error_of(write, form.format([5, 1], [1, 2, 3]))


def test_an_allowed_import_path(write):
    """A class of the user's own, from the document."""
    text = "optimizer: sgd\nloss_scale: {name: 'scalekeeper.lossscales.dynamic:DynamicLossScale', minimum: 2}"
    assert write(text, allow=["scalekeeper.*"]).loss_scale.params.minimum == 2.0


def test_a_byte_order_mark_does_no_harm(write):
    """Some editors write one."""
    assert write(b"\xef\xbb\xbfoptimizer: sgd").optimizer.name == "sgd"


def test_files_that_can_not_be_read(tmp_path):
    """A missing file, a folder, a name that can't be one: the reason, and no traceback of the reader's."""
    for path, reason in ((tmp_path / "no.yaml", "No such file"), (tmp_path, "Is a directory"), ("a\0b", "null")):
        with pytest.raises(DocumentError, match="can't be read: .*" + reason):
            load_document(path)


def test_a_huge_file_is_not_read(tmp_path):
    """100 MB are refused after the first."""
    path = tmp_path / "huge.yaml"
    with open(str(path), "wb") as stream:
        stream.truncate(100 * 1024 * 1024)
    with pytest.raises(DocumentError, match="is larger than a document may be"):
        load_document(path)


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ("growth_interval", "increment_period"),
        ("scale_window", "increment_period"),
        ("loss_scale_window", "increment_period"),
        ("incr_every_n_steps", "increment_period"),
        ("dynamic_growth_steps", "increment_period"),
        ("init_scale", "initial_loss_scale"),
        ("initial_scale", "initial_loss_scale"),
        ("scale_factor", "multiplier"),
        ("incr_ratio", "growth_factor"),
        ("decr_ratio", "backoff_factor"),
        ("min_loss_scale", "minimum"),
        ("max_scale", "maximum"),
        ("decr_every_n_nan_or_inf", "hysteresis"),
    ],
)
@pytest.mark.parametrize("name", ["dynamic", "dynamic/pytorch"])
def test_a_parameter_of_another_library_gets_its_name_here(write, name, given, own):
    """The error points to the key and names the parameter that is meant."""
    text = f"optimizer: sgd\nloss_scale:\n  name: {name}\n  {given}: 2\n"
    told = error_of(write, text)
    assert f"4:3: loss_scale.{given}: unknown parameter '{given}' of {name}; did you mean '{own}'?" in told


def test_a_parameter_with_another_meaning_gets_the_value_to_write(write):
    """DeepSpeed gives the power of two; the same number here would be another scale."""
    text = "optimizer: sgd\nloss_scale: {name: dynamic/deepspeed, initial_scale_power: 16}\n"
    assert "Write initial_loss_scale as 2 to that power, such as 65536 for 16." in error_of(write, text)
