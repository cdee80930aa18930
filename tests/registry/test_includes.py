"""Documents that include others: what wins, what may be read, and which file an error points to."""

import os
import sys

import pytest

from scalekeeper import DocumentError, InvalidSpecError, load_document

BASE = "optimizer:\n  name: adam\n  epsilon: 1e-4\n  beta_1: 0.8\nloss_scale: {name: dynamic, minimum: 2}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that is the current one; ``write`` puts files into it."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def write(folder, **files):
    """Files by name, with __ for a dot and ___ for a slash."""
    for name, text in files.items():
        path = folder / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))


def load(name="train.yaml", **options):
    return load_document(name, target="2.15", **options)


def error_of(name="train.yaml", **options):
    with pytest.raises(DocumentError) as caught:
        load(name, **options)
    return str(caught.value)


def test_mappings_merge_and_the_later_wins(folder):
    """The document has the last word, value by value; lists and names replace."""
    write(
        folder,
        base__yaml=BASE + "watch: [zero_share]\n",
        train__yaml="include: base.yaml\noptimizer: {epsilon: 1e-3, clipnorm: 1}\nwatch: []\n",
    )
    document = load()
    assert document.optimizer.name == "adam"
    assert document.optimizer.arguments == {"epsilon": 1e-3, "beta_1": 0.8, "clipnorm": 1.0}
    assert (document.loss_scale.params.minimum, document.monitoring.watch) == (2.0, [])


def test_several_files_in_order(folder):
    """The later of a list wins; a number, a name and a mapping take each other's place."""
    write(folder, a__yaml=BASE, b__json='{"optimizer": {"epsilon": 5e-1}, "loss_scale": "dynamic/apex"}')
    write(folder, train__yaml="include: [a.yaml, b.json]\nloss_scale: {minimum: 4}\n")
    document = load()
    assert document.optimizer.arguments["epsilon"] == 0.5
    assert (document.loss_scale.params.minimum, document.loss_scale.params.maximum) == (4.0, 2.0**24)
    write(folder, train__yaml="include: [b.json, a.yaml]\nloss_scale: 128\n")
    assert (load().optimizer.arguments["epsilon"], load().loss_scale()) == (1e-4, 128.0)


def test_json_includes_yaml_and_yaml_json(folder):
    """Each file is read by its own name."""
    write(folder, a__yaml=BASE, b__json='{"include": "a.yaml", "optimizer": {"beta_1": 0.5}}')
    write(folder, train__yml="# comment\ninclude: b.json\n")
    assert load("train.yml").optimizer.arguments == {"epsilon": 1e-4, "beta_1": 0.5}
    assert load("b.json").optimizer.arguments == {"epsilon": 1e-4, "beta_1": 0.5}


def test_names_are_relative_to_their_file(folder):
    """In a subfolder, and from there back into the folder of the document."""
    write(folder, base__yaml=BASE, sub___mid__yaml="include: ../base.yaml\noptimizer: {beta_1: 0.1}\n")
    write(folder, train__yaml="include: sub/mid.yaml\n")
    assert load().optimizer.arguments == {"epsilon": 1e-4, "beta_1": 0.1}
    os.chdir("sub")
    assert load("../train.yaml").optimizer.arguments["beta_1"] == 0.1
    assert load(os.path.abspath("../train.yaml")).optimizer.name == "adam"


def test_windows_line_endings_unicode_and_a_byte_order_mark(folder):
    """Files of any editor; the position of an error counts lines as the editor does."""
    write(
        folder, b__yaml=b"\xef\xbb\xbf" + BASE.replace("\n", "\r\n").encode() + "# größe\r\nwatch: [漢字]\r\n".encode()
    )
    write(folder, train__yaml="include: b.yaml\r\n")
    assert error_of().startswith("b.yaml:7:9: watch[0]: '漢字' must be")
    write(folder, **{"größe 漢字__yaml": BASE, "train__yaml": "include: größe 漢字.yaml\r\n"})
    assert load().optimizer.name == "adam"


def test_anchors_belong_to_their_file(folder):
    """An alias of an included file works there, and is unknown in the document."""
    write(folder, base__yaml="optimizer: {name: adam, beta_1: &b 0.5, beta_2: *b}\n")
    write(folder, train__yaml="include: base.yaml\noptimizer: {epsilon: 1e-2}\n")
    assert load().optimizer.arguments == {"beta_1": 0.5, "beta_2": 0.5, "epsilon": 0.01}
    write(folder, train__yaml="include: base.yaml\noptimizer: {epsilon: *b}\n")
    assert "train.yaml:2:22: the alias *b has no anchor before it" in error_of()


def test_merging_does_not_change_what_an_anchor_shares(folder):
    """A value that two keys share is merged in one of them alone."""
    shared = "&a {schedule: cosine_decay, initial_learning_rate: 1, decay_steps: 5}"
    write(folder, base__yaml=f"optimizer: {{name: sgd, learning_rate: {shared}}}\nloss_scale: *a\n")
    write(folder, train__yaml="include: base.yaml\nloss_scale: {decay_steps: 7}\n")
    document = load(overrides=["loss_scale=dynamic"])
    assert document.optimizer.arguments["learning_rate"].arguments["decay_steps"] == 5


def test_errors_point_into_the_right_file(folder):
    """Each finding has its own file, line and excerpt; what a file had set before is named."""
    write(folder, base__yaml=BASE.replace("0.8", "8"))
    write(folder, train__yaml="include: base.yaml\noptimizer:\n  epsilon: small\n  betta: 1\n")
    with pytest.raises(DocumentError) as caught:
        load()
    assert caught.value.name == "train.yaml"
    assert [(each.source, each.place, each.problem.path) for each in caught.value.findings] == [
        ("train.yaml", (3, 12), ("optimizer", "epsilon")),
        ("train.yaml", (4, 3), ("optimizer", "betta")),
        ("base.yaml", (4, 11), ("optimizer", "beta_1")),
    ]
    text = str(caught.value)
    assert "train.yaml:3:12: optimizer.epsilon: 'small' must be a number" in text
    assert "(base.yaml:3:12 had set it to 0.0001)\n   3 |   epsilon: small\n" in text
    assert "base.yaml:4:11: optimizer.beta_1: 8 must be less than or equal to 1\n   4 |   beta_1: 8\n" in text


def test_an_override_replaces_what_was_included(folder):
    """The error says which file had set it."""
    write(folder, base__yaml=BASE, train__yaml="include: base.yaml\n")
    assert load(overrides=["optimizer.epsilon=1"]).optimizer.arguments["epsilon"] == 1.0
    assert "<override 1>:1:19: " in error_of(overrides=["optimizer.epsilon=x"])
    assert "(base.yaml:3:12 had set it to 0.0001)" in error_of(overrides=["optimizer.epsilon=x"])


def test_parameters_of_another_policy_are_an_error(folder):
    """They are not dropped in silence when the name changes: the file that has them is named."""
    write(folder, base__yaml=BASE, train__yaml="include: base.yaml\nloss_scale: {name: fixed, loss_scale_value: 8}\n")
    assert error_of().startswith("base.yaml:5:29: loss_scale.minimum: unknown parameter 'minimum' of fixed")
    assert load(overrides=["~loss_scale.minimum"]).loss_scale() == 8.0


def test_a_cycle_is_an_error_with_the_chain(folder):
    """Of two files, of one, through a symbolic link."""
    write(
        folder, train__yaml="include: a.yaml\n", a__yaml="include: sub/b.yaml\n", sub___b__yaml="include: ../a.yaml\n"
    )
    chain = "a.yaml includes sub/b.yaml includes a.yaml"
    assert error_of().startswith(f"sub/b.yaml:1:10: include: a cycle: {chain}")
    write(folder, train__yaml="include: train.yaml\n")
    assert "a cycle: train.yaml includes train.yaml" in error_of()
    if hasattr(os, "symlink"):
        os.symlink("train.yaml", "link.yaml")
        write(folder, train__yaml="include: link.yaml\n")
        assert "a cycle: train.yaml includes train.yaml" in error_of()


def test_a_file_may_be_included_twice(folder):
    """By two files that the document includes: that is not a cycle."""
    write(folder, base__yaml=BASE, a__yaml="include: base.yaml\noptimizer: {beta_2: 0.5}\n")
    write(folder, b__yaml="include: base.yaml\noptimizer: {epsilon: 1}\n", train__yaml="include: [a.yaml, b.yaml]\n")
    assert load().optimizer.arguments == {"epsilon": 1.0, "beta_1": 0.8, "beta_2": 0.5}


@pytest.mark.parametrize(
    "given", ["../base.yaml", "sub/../../base.yaml", "{absolute}", "./.././base.yaml", "link.yaml", "links/base.yaml"]
)
def test_files_outside_of_the_folder(folder, given):
    """They are not read by any path, unless their folder is allowed."""
    write(folder.parent, base__yaml=BASE)
    (folder / "sub").mkdir()
    os.symlink(str(folder.parent / "base.yaml"), "link.yaml")
    os.symlink(str(folder.parent), "links")
    given = given.format(absolute=str(folder.parent / "base.yaml"))
    write(folder, train__yaml=f"include: {given}\n")
    text = error_of()
    assert text.startswith("train.yaml:1:10: include: including ")
    assert "is not allowed: it is outside of the folder of train.yaml. To allow a folder, pass allow_include=" in text
    assert load(allow_include=[".."]).optimizer.name == "adam"
    assert load(allow_include=folder.parent).optimizer.name == "adam"
    assert "is not allowed" in error_of(allow_include=[str(folder / "sub"), str(folder.parent) + "x"])


def test_a_neighbour_with_a_similar_name_is_outside(folder):
    """``project-2`` is not below ``project``."""
    write(folder.parent, **{"project-2___base__yaml": BASE})
    write(folder, train__yaml="include: ../project-2/base.yaml\n")
    assert "is not allowed" in error_of()


def test_nothing_is_said_of_files_outside(folder):
    """The message is the same whether there is such a file or not."""
    write(folder.parent, secret__yaml="password")
    texts = []
    for name in ("secret", "absent"):
        write(folder, train__yaml=f"include: ../{name}.yaml\n")
        texts.append(error_of().replace(name, "x"))
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("include: 5", "5 is not the name of a file"),
        ("include: null", "None is not the name of a file"),
        ("include: ''", "'' is not the name of a file"),
        ("include: {a: b}", "is not the name of a file"),
        ("include: [[base.yaml]]", "is not the name of a file"),
        ("include: [base.yaml, 5]", "train.yaml:1:22: include: 5 is not"),
        ("include: absent.yaml", "train.yaml:1:10: include: 'absent.yaml' can't be read: No such file"),
        ("include: sub", "'sub' can't be read: it is not a file"),
        ("include: .", "can't be read: it is not a file"),
        ('include: "a\\0b"', "null"),
        ("include: ${env:HOME}/x.yaml", "a file name can't have references"),
        ("include: list.yaml", "list.yaml:1:1: an included file is a mapping with keys of a document, not [1]"),
        ("include: empty.yaml", "empty.yaml:1:1: the document is empty"),
        ("include: broken.yaml", "broken.yaml:1:14: not YAML"),
        ("include: binary.yaml", "binary.yaml:1:1: not UTF-8 text"),
        ("include: base.yaml\ninclude: base.yaml", "the key 'include' is there twice"),
        ("include: base.yaml\n\u0456nclude: base.yaml", "unknown key '\u0456nclude'; did you mean 'include'?"),
        ("includes: base.yaml", "unknown key 'includes'; did you mean 'include'?"),
        ("optimizer: {include: base.yaml}", "optimizer needs 'name'"),
    ],
)
def test_wrong_includes(folder, text, expected):
    """One message that says what is wrong with the name or the file."""
    (folder / "sub").mkdir()
    write(folder, base__yaml=BASE, list__yaml="[1]", empty__yaml="", broken__yaml="optimizer: [1", binary__yaml=b"\xff")
    write(folder, train__yaml=text)
    assert expected in error_of()


@pytest.mark.skipif(not hasattr(os, "mkfifo") or os.name == "nt", reason="there are no pipes")
def test_a_pipe_is_not_waited_for(folder):
    """A file that never ends, or never begins, is refused."""
    os.mkfifo("pipe.yaml")
    write(folder, train__yaml="include: pipe.yaml\n")
    assert "it is not a file" in error_of()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0 or sys.platform == "win32", reason="root reads all")
def test_a_file_without_permission(folder):
    """The reason is that of the system."""
    write(folder, base__yaml=BASE, train__yaml="include: base.yaml\n")
    os.chmod("base.yaml", 0)
    assert "'base.yaml' can't be read: Permission denied" in error_of()


def test_a_read_only_file(folder):
    """Reading is all that is done with it."""
    write(folder, base__yaml=BASE, train__yaml="include: base.yaml\n")
    os.chmod("base.yaml", 0o444)
    os.chmod(str(folder), 0o555)
    try:
        assert load().optimizer.name == "adam"
    finally:
        os.chmod(str(folder), 0o755)


def test_too_many_files_and_too_long_a_chain(folder):
    """Both are counted, before the files are read."""
    write(folder, base__yaml=BASE, train__yaml=f"include: [{', '.join(['base.yaml'] * 32)}]\n")
    assert load().optimizer.name == "adam"
    write(folder, train__yaml=f"include: [{', '.join(['base.yaml'] * 33)}]\n")
    assert "more than 32 files are included" in error_of()
    write(folder, **{f"f{number}__yaml": f"include: f{number + 1}.yaml\n" for number in range(20)})
    write(folder, train__yaml="include: f0.yaml\n")
    text = error_of()
    assert text.startswith("f7.yaml:1:10: include: more than 8 files include one another: train.yaml includes f0.yaml")
    write(folder, f7__yaml=BASE)
    assert load().optimizer.name == "adam"


def test_a_bomb_of_includes(folder):
    """Each file includes the next one ten times: the files are counted, not read a million times."""
    for number in range(7):
        write(folder, **{f"f{number}__yaml": f"include: [{', '.join([f'f{number + 1}.yaml'] * 10)}]\n"})
    write(folder, f7__yaml=BASE, train__yaml="include: f0.yaml\n")
    assert "more than 32 files are included" in error_of()


def test_large_files_together(folder):
    """A document and its files share the limits of one document: characters, and values."""
    write(folder, big__yaml="# " + "x" * 600_000 + "\n" + BASE, train__yaml="include: [big.yaml, big.yaml]\n")
    assert "larger than 1024 KiB together" in error_of()
    many = ", ".join(["1"] * 6000)
    write(folder, a__yaml=f"watch: [{many}]\n", train__yaml=f"include: a.yaml\noptimizer: [{many}]\n")
    assert "more than 10000 values, with included files, overrides and references" in error_of()


def test_documents_without_a_folder(folder):
    """A mapping includes from allowed folders only, by names relative to the current folder."""
    write(folder, base__yaml=BASE)
    with pytest.raises(InvalidSpecError, match="this document has no folder of its own"):
        load({"include": "base.yaml"})
    assert load({"include": "base.yaml"}, allow_include=["."]).optimizer.name == "adam"
    with pytest.raises(InvalidSpecError, match="can't be read: No such file"):
        load({"include": "absent.yaml"}, allow_include=".")
    write(folder, base__yaml=BASE.replace("adam", "adma"))
    with pytest.raises(DocumentError, match=r"base\.yaml:2:9: optimizer\.name"):
        load({"include": "base.yaml"}, allow_include=["."])
