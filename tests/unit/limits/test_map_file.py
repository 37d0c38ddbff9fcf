"""A map says pairs by hand: it is read strictly, goes before all that is found, and what is written is read again."""

import numpy as np
import pytest

import qdebug
from qdebug.compare.align.align import align
from qdebug.compare.align.pairs import Match, Pair, PairList, Transform, UnmatchedKind
from qdebug.errors import UsageError
from qdebug.limits.map_file import load_map, map_text, write_pair

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(2, 4, 9)).astype(np.float32)


def bare(**arrays):
    with qdebug.Recorder(None, backend="harness") as rec:
        for name, values in arrays.items():
            rec.put(name, values)
    return rec.recording


def written(tmp_path, text):
    path = tmp_path / "map.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_pairs_orders_and_what_stands_alone_are_read(tmp_path):
    path = written(
        tmp_path,
        '[[pair]]\nbackend = "a"\nreference = "x"\nbackend_order = [1, 0]\n\n[[alone]]\nbackend = "b"\n',
    )
    pair = Pair(
        reference="x",
        backend="a",
        match=Match.MANUAL,
        reason="the map says so",
        backend_view=Transform(transpose=(1, 0)),
    )
    assert load_map(path) == PairList(pairs=(pair,), alone=("b",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[pair]]\nreference = "x"\nbackend = 3\n', "'backend' is 3"),
        ('[[pair]]\nbackend = "a"\n', "reference"),
        ('[[pair]]\nbackend = "a"\nreference = "x"\nbackend_order = [0, 2]\n', "each dimension once"),
        ('[[pair]]\nbackend = "a"\nreference = "x"\norder = [0]\n', "'order'"),
        ('[pair]\nbackend = "a"\n', "[[pair]]"),
        ('[[pairs]]\nbackend = "a"\n', "'pairs'"),
        ('[[alone]]\nbackend = "a"\n[[pair]]\nbackend = "a"\nreference = "x"\n', "twice"),
        ("[[pair\n", "not valid TOML"),
        ("\0", "not valid TOML"),
    ],
)
def test_what_means_nothing_is_refused_with_its_place(tmp_path, text, said):
    with pytest.raises(UsageError) as caught:
        load_map(written(tmp_path, text))
    assert said in str(caught.value)


def test_a_missing_file_is_said_with_how_to_make_one(tmp_path):
    with pytest.raises(UsageError, match="--write-map"):
        load_map(tmp_path / "none.toml")


def test_a_map_goes_before_names_and_values(tmp_path):
    """It pairs what has other values, and takes the partner away from the tensor of that name."""
    ref, be = bare(x=X, y=Y), bare(x=Y, y=X, z=X)
    path = written(
        tmp_path,
        '[[pair]]\nbackend = "x"\nreference = "y"\n'
        '[[pair]]\nbackend = "y"\nreference = "x"\n'
        '[[alone]]\nbackend = "z"\n',
    )
    result = qdebug.diff(ref, be, map=path)
    assert {node.tensor: (node.reference_tensor, node.match, node.status) for node in result.nodes} == {
        "x": ("y", Match.MANUAL, "identical"),
        "y": ("x", Match.MANUAL, "identical"),
    }
    left = {entry.tensor: (entry.kind, entry.reason) for entry in result.coverage.unmatched}
    assert left == {"z": (UnmatchedKind.BENIGN, "the map leaves it unmatched")}
    assert result.exit_code == 0


def test_an_order_that_the_map_says_is_used_and_else_one_is_found():
    square = RNG.normal(size=(6, 6)).astype(np.float32)
    ref, be = bare(x=square), bare(a=square.T)
    for view in (None, Transform(transpose=(1, 0))):
        given = Pair(reference="x", backend="a", match=Match.MANUAL, reason="", backend_view=view)
        result = qdebug.diff(ref, be, map=PairList(pairs=[given]))
        assert [node.status for node in result.nodes] == ["identical"]


def test_names_that_a_recording_lacks_are_refused_with_a_near_one():
    given = PairList(pairs=[Pair(reference="conv1", backend="a", match=Match.MANUAL, reason="")])
    with pytest.raises(UsageError, match="Did you mean 'conv11'"):
        align(bare(conv11=X), bare(a=X), given=given)


def test_what_is_written_gives_the_same_pairs_again(tmp_path):
    """Pairs by values become the user's; a lost tensor stands there as a comment with its nearest candidate."""
    ref = bare(x=X, y=Y, lost=RNG.normal(size=(7, 3)), **{'n"\\\n': X[:2] + 1})
    be = bare(x=X, t1=Y.T, t2=RNG.normal(size=(7, 3)), t3=X[:2] + 1)
    first = qdebug.diff(ref, be)
    text = map_text(first)
    assert '# backend = "t2"\n# reference = "lost"' in text
    second = qdebug.diff(ref, be, map=written(tmp_path, text))
    known = [{node.tensor: (node.reference_tensor, node.status) for node in each.nodes} for each in (first, second)]
    assert known[0] == known[1]
    assert len(known[0]) == 3
    assert {node.tensor: node.match for node in second.nodes} == {"x": "exact", "t1": "manual", "t3": "manual"}
    assert load_map(written(tmp_path, map_text(second))).pairs == load_map(tmp_path / "map.toml").pairs


def test_a_pair_that_is_written_takes_the_place_of_the_one_before_and_the_rest_stays(tmp_path):
    path = tmp_path / "map.toml"
    write_pair(path, "a", "x")
    path.write_text(path.read_text(encoding="utf-8") + '\n# mine\n[[alone]]\nbackend = "b"\n', encoding="utf-8")
    write_pair(path, "a", "y")
    said = write_pair(path, 'odd "name"', "")
    assert [(pair.backend, pair.reference) for pair in said.pairs] == [("a", "y")]
    assert said.alone == ("b", 'odd "name"')
    assert "# mine\n[[alone]]" in path.read_text(encoding="utf-8")
    assert write_pair(path, "b", "z").alone == ('odd "name"',)
