"""Random architectures whose layers have equal shapes, renamed, reordered, grown or shrunk: no variable is swapped."""

from hypothesis import assume, event, given
from hypothesis import strategies as st

from scalekeeper.serialization._matching import match_owners
from scalekeeper_test_support.random_architectures import has_one_order, is_decidable, two_programs

LEAVES = {"kernel": (3, 3), "bias": (3,)}


def owners(side, prefix):
    """Owner → identity, in the order of the layers."""
    names = side.names()
    return {f"{prefix}{names[each.identity]}/{leaf}": each.identity for each in side.layers for leaf in LEAVES}


@given(two_programs(), st.sampled_from(["", "model/"]), st.sampled_from(["", "model_1/"]))
def test_no_variable_is_swapped(both, model_prefix, file_prefix):
    """Every pair is a variable and itself; what is not matched is listed; the same program matches as a whole."""
    file, model = both
    assume(is_decidable(file, model))
    in_file, in_model = owners(file, file_prefix), owners(model, model_prefix)
    shapes = [{owner: LEAVES[owner.split("/")[-1]] for owner in each} for each in (in_model, in_file)]
    matching = match_owners(*shapes)
    assert {owner: in_file[other] for owner, other in matching.pairs.items()} == {
        owner: in_model[owner] for owner in matching.pairs
    }
    assert all(owner.split("/")[-1] == other.split("/")[-1] for owner, other in matching.pairs.items())
    assert sorted([*matching.pairs, *matching.missing]) == sorted(in_model)
    assert sorted([*matching.pairs.values(), *matching.unused]) == sorted(in_file)
    if [each[:2] for each in file.layers] == [each[:2] for each in model.layers] and has_one_order(file, model):
        assert not matching.missing, matching
        event("the same program")
    event("complete" if not matching.missing else "partial" if matching.pairs else "nothing")
