"""Generated parts of docs/ equal what the scripts generate."""

import glob
import json
import os
import re

import pytest

from scalekeeper.registry import known_targets, loss_scales
from scalekeeper.registry._optimizer_spec import argument_model, names
from scalekeeper_test_support.generated_pages import with_parts
from scalekeeper_test_support.repository import ROOT, load_script


def page(name):
    with open(os.path.join(ROOT, "docs", name), encoding="utf-8") as stream:
        return stream.read()


def test_the_tables_of_performance_are_made_from_the_results():
    """`python benchmarks/render.py` would not change the page."""
    render, text = load_script("benchmarks/render.py"), page("performance.md")
    assert with_parts(text, render.parts_of_page(render.results()), "performance.md") == text


def test_the_figures_of_costs_are_made_from_the_results():
    """`python benchmarks/render.py` would not change the page, which shows the plot of the same results."""
    render, text = load_script("benchmarks/render.py"), page("cost.md")
    assert with_parts(text, render.parts_of_cost_page(render.results()), "cost.md") == text
    assert "(cost_of_a_step.svg)" in text


def test_each_guarantee_names_its_proof():
    """Each row has a page or a test as its proof, and all named tests exist."""
    rows = [line for line in page("guarantees.md").splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 12
    for row in rows:
        proof = row.rsplit(" | ", 1)[1]
        assert ".md" in proof
        for name in re.findall(r"`(test_\w+\.py)`", proof):
            assert len(glob.glob(os.path.join(ROOT, "*tests", "**", name), recursive=True)) == 1, name


def test_the_tables_of_gpus_are_made_from_the_results():
    """`python benchmarks/render.py` would not change the page."""
    render, text = load_script("benchmarks/render.py"), page("gpu.md")
    assert with_parts(text, render.parts_of_gpu_page(render.results()), "gpu.md") == text


def test_a_report_of_a_gpu_becomes_a_line(tmp_path):
    """A report of `python -m scalekeeper.testing.gpu` is shown as ratios; without any, the page has a sentence."""
    render = load_script("benchmarks/render.py")
    assert render.gpu_reports_table(render.gpu_reports(str(tmp_path))) == "No figures have come in yet."
    step = {"bare": 1.0, "own": 3.0, "ours": 2.0}
    report = {
        "environment": {"tensorflow": "2.15.1", "keras": "2.15.0", "gpus": ["A100"]},
        "steps": [{"set": name, "optimizer": inner, **step} for name in render.SETS for inner in ("SGD", "Adam")],
        "operations": {who: {"copies_to_host": count} for who, count in (("bare", 0), ("own", 2), ("ours", 2))},
        "fit": [{"model": name, "own": 4.0, "ours": 3.0} for name in ("convolutional", "transformer")],
    }
    (tmp_path / "a.json").write_text(json.dumps(report), encoding="utf-8")
    lines = render.gpu_reports_table(render.gpu_reports(str(tmp_path))).splitlines()
    ratios = " | ".join(["0.50"] * 6)
    assert lines[2:] == [f"| A100 | 2.15.1, Keras 2.15.0 | {ratios} | 0.750 | 0.750 | 0 / 2 / 2 |"]
    assert {line.count("|") for line in lines} == {12}


def test_the_tables_of_reliability_are_made_from_the_results():
    """`python compat_tests/reliability/render.py` would not change the page."""
    render, text = load_script("compat_tests/reliability/render.py"), page("reliability.md")
    assert with_parts(text, render.parts_of_page(render.recorded()), "reliability.md") == text


def test_the_tables_of_models_are_made_from_the_results():
    """`python compat_tests/corpus/render.py` would not change the page."""
    render, text = load_script("compat_tests/corpus/render.py"), page("models.md")
    assert with_parts(text, render.parts_of_page(render.results()), "models.md") == text


def test_the_table_of_policies_is_made_from_the_trace():
    """`python benchmarks/policies_on_a_run.py` would not change the page: each policy loses the steps it says."""
    made, text = load_script("benchmarks/policies_on_a_run.py"), page("policies.md")
    assert with_parts(text, {"policies": made.table(made.simulated())}, "policies.md") == text


@pytest.mark.parametrize("name", ["configuration", "command_line"])
def test_the_references_are_made_from_the_code(name):
    """`python docs/making/render.py` would not change the page."""
    text = page(name + ".md")
    assert with_parts(text, load_script(f"docs/making/{name}.py").parts_of_page(), name + ".md") == text


def test_the_reference_of_python_is_made_from_the_code():
    """`python docs/making/render.py` would not change a page of docs/reference/, and would write no other."""
    made = load_script("docs/making/reference.py").pages()
    assert {name: page("reference/" + name) for name in os.listdir(os.path.join(ROOT, "docs", "reference"))} == made


def test_the_pictures_are_made_from_simulations():
    """`python docs/making/render.py` would not change them; docs/policies.md shows one for each policy."""
    made = load_script("docs/making/pictures.py").pictures()
    assert {name: page("pictures/" + name) for name in os.listdir(os.path.join(ROOT, "docs", "pictures"))} == made
    for row in loss_scales.listing():
        if row.plugin.cls.__module__.startswith("scalekeeper.") and row.plugin.preset is None:
            assert f"(pictures/{row.name}.svg)" in page("policies.md")


def test_the_reference_has_every_parameter():
    """Of each policy, preset, optimizer and schedule of every version; each parameter with a description."""
    text = page("configuration.md")
    ours = [row for row in loss_scales.listing() if row.plugin.cls.__module__.startswith("scalekeeper.")]
    assert len(ours) > 20
    for row in ours:
        assert f"### {row.name}\n" in text or f"| `{row.name}` |" in text
        for name, field in row.plugin.parameters.model_fields.items():
            assert field.description
            assert f"| `{name}` |" in text
    for target in known_targets():
        for kind in ("optimizers", "schedules"):
            for name in names(kind, target):
                assert f"### {name}\n" in text or f"`{name}` on " in text
                assert all(f"| `{argument}` |" in text for argument in argument_model(kind, name, target).model_fields)


def test_the_table_of_lost_gradients_is_made_from_the_record():
    """`python benchmarks/vanishing_gradients.py` would not change the page; a scale saves what float16 loses."""
    made, text = load_script("benchmarks/vanishing_gradients.py"), page("why.md")
    found = made.recorded()
    assert with_parts(text, {"losses": made.table(found)}, "why.md") == text
    exact, lost, saved = (found[label]["losses"][-1][1] for label in made.RUNS)
    assert lost > 2 * exact
    assert abs(saved - exact) < 0.02 * exact


def test_the_pictures_of_lost_gradients_are_made_from_the_record():
    """Each says which record it was drawn from, and is small."""
    made = load_script("benchmarks/vanishing_gradients.py")
    for name in ("gradients_and_float16.svg", "losses_with_and_without_scale.svg"):
        assert f"({name})" in page("why.md")
        assert made.source(made.recorded()) in page(name)
        assert len(page(name)) < 30_000


def test_each_version_of_the_matrix_was_measured():
    """A figure that is missing would not be seen."""
    found = {each["name"]: each for each in load_script("benchmarks/render.py").results()}
    assert list(found) == ["2.0", "2.1", "2.2", "2.3", "2.10", "2.15", "2.21 Keras 3", "2.21 tf_keras"]
    for name, each in found.items():
        assert {row["scale"] for row in each["step"]} >= {"dynamic"}
        assert ("fit" in each) == (name not in ("2.0", "2.1", "2.2", "2.3"))


def test_a_site_that_fetches_from_elsewhere_is_found(tmp_path):
    """A script, a font or a picture of another machine, and what is not there; links to other machines are fine."""
    (tmp_path / "good.html").write_text(
        '<a href="https://example.org/">there</a><img src="good.svg" alt="A"><a href="good.html#x">here</a>',
        encoding="utf-8",
    )
    (tmp_path / "good.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>', encoding="utf-8")
    check = load_script("docs/making/check_site.py")
    assert list(check.problems(str(tmp_path))) == []
    (tmp_path / "bad.html").write_text(
        '<script src="https://example.org/a.js"></script><a href="lost.html">lost</a>', encoding="utf-8"
    )
    (tmp_path / "bad.css").write_text("@font-face { src: url(//example.org/a.woff2) }", encoding="utf-8")
    assert sorted(each[len(str(tmp_path)) + 1 :] for each in check.problems(str(tmp_path))) == [
        "bad.css fetches //example.org/a.woff2",
        "bad.html fetches https://example.org/a.js",
        "bad.html refers to lost.html, which is not there",
    ]


def test_a_picture_without_text_and_a_large_page_are_found(tmp_path):
    """Every picture has an alt text, and no page is too large."""
    (tmp_path / "a.svg").write_text("<svg/>", encoding="utf-8")
    page = tmp_path / "page.html"
    check = load_script("docs/making/check_site.py")
    page.write_text('<img src="a.svg" alt="A scale">', encoding="utf-8")
    assert list(check.problems(str(tmp_path))) == []
    page.write_text('<img src="a.svg" alt="">' + " " * check.LARGEST_PAGE, encoding="utf-8")
    assert list(check.problems(str(tmp_path))) == [
        f"{page} has more than 300,000 bytes",
        f"{page} shows a.svg without an alt text",
    ]


def test_headings_with_one_anchor_are_found(tmp_path):
    """MkDocs numbers the second of two equal headings, and a link to it leads to the first."""
    check = load_script("docs/making/check_site.py")
    page = tmp_path / "page.html"
    page.write_text('<h1 id="sweep">Sweep</h1><h2 id="sweep-class">Sweep</h2><p id="part_1">one</p>', encoding="utf-8")
    assert list(check.problems(str(tmp_path))) == []
    page.write_text('<h1 id="sweep">Sweep</h1><h2 id="sweep_1">sweep</h2>', encoding="utf-8")
    assert list(check.problems(str(tmp_path))) == [
        f"{page} has another heading with the anchor of #sweep_1, so links to it lead to the first"
    ]


def test_a_search_that_leads_nowhere_is_found(tmp_path):
    """Every search of the list has its words in the section that it has to lead to."""
    check = load_script("docs/making/check_site.py")
    index = tmp_path / "search" / "search_index.json"
    index.parent.mkdir()
    docs = [{"location": place, "title": words, "text": ""} for words, place in check.SEARCHES.items()]
    index.write_text(json.dumps({"docs": docs}), encoding="utf-8")
    assert list(check.problems_of_search(str(tmp_path))) == []
    docs[1]["title"] = "old"
    index.write_text(json.dumps({"docs": docs}), encoding="utf-8")
    assert list(check.problems_of_search(str(tmp_path))) == [
        "the search index has no h5 at files/, where 'old h5' has to lead"
    ]


def test_the_table_of_versions_is_made_from_the_results():
    """`python compat_tests/versions.py` would not change the page."""
    made, text = load_script("compat_tests/versions.py"), page("versions.md")
    assert with_parts(text, made.parts_of_page(made.read_results(), made.read_installs()), "versions.md") == text


def test_every_failure_on_a_version_has_a_reason():
    """docs/versions.md lists no failed test without a reason, and known_failures.json no reason without a test."""
    made = load_script("compat_tests/versions.py")
    rows = made.failures(made.read_results())[2:]
    assert [row for row in rows if "**not known**" in row] == []
    with open(made.REASONS, encoding="utf-8") as stream:
        assert [each["reason"] for each in json.load(stream) if not any(each["reason"] in row for row in rows)] == []
