"""Files that were cut off, or whose bytes rotted: a typed error or a good read, never a crash, a hang or a traceback.

Points are seeded: the same files every time.
"""

import random

import pytest
from recording_parts import spans_of

MANY = (1, pytest.param(5, marks=pytest.mark.slow))  # how many times as many files


@pytest.fixture(scope="module")
def regions(innocent):
    """Byte ranges of the tables and of the payloads."""
    return spans_of(innocent)


@pytest.fixture
def judge(tmp_path, open_files):
    """A function that writes contents to files, uses them all, and gives the outcomes."""

    def run(contents):
        paths = []
        for number, content in enumerate(contents):
            paths.append(tmp_path / f"{number}.h5")
            paths[-1].write_bytes(content)
        results, end = open_files(paths)
        broken = [(number, result["what"]) for number, result in enumerate(results) if result["outcome"] == "broken"]
        assert not broken, f"{len(broken)} files, the first is number {broken[0][0]}: {broken[0][1]}"
        assert end["peak_mb"] < 700
        return [result["outcome"] for result in results]

    return run


def flipped(content, points, rng):
    damaged = bytearray(content)
    for point in points:
        damaged[point] ^= rng.choice([1, 2, 4, 8, 16, 32, 64, 128, 255])
    return bytes(damaged)


def test_a_file_cut_off_anywhere_is_refused(innocent, judge):
    content = innocent.read_bytes()
    points = sorted({0, 1, 7, 8, 9, 47, 48, 96, len(content) - 1, *range(10, len(content), len(content) // 40)})
    assert len(points) > 40
    assert set(judge([content[:point] for point in points])) == {"refused"}


def test_a_file_with_something_behind_it_is_read(innocent, judge):
    content = innocent.read_bytes()
    assert judge([content + bytes(1), content + b"x" * 10_000]) == ["read", "read"]


@pytest.mark.parametrize("many", MANY)
def test_flipped_bytes_in_the_tables(innocent, judge, regions, many):
    rng = random.Random(1)  # noqa: S311  seeded on purpose
    content = innocent.read_bytes()
    points = [point for span in regions[0].values() for point in span]
    outcomes = judge([flipped(content, [rng.choice(points)], rng) for _ in range(40 * many)])
    assert "refused" in outcomes  # else nothing was damaged


@pytest.mark.parametrize("many", MANY)
def test_each_table_with_several_bytes_flipped(innocent, judge, regions, many):
    tables = ("index", "tensors", "nodes", "quants", "strings", "operands", "run", "attributes")
    content, damaged = innocent.read_bytes(), []
    for table in tables:
        rng, span = random.Random(table), regions[0][table]  # noqa: S311  seeded on purpose
        damaged += [flipped(content, rng.sample(span, min(len(span), 4)), rng) for _ in range(6 * many)]
    outcomes = judge(damaged)
    for number, table in enumerate(tables):
        assert "refused" in outcomes[number * 6 * many :][: 6 * many], table


@pytest.mark.parametrize("many", MANY)
def test_flipped_bytes_in_the_containers_own_structures(innocent, judge, regions, many):
    rng = random.Random(2)  # noqa: S311  seeded on purpose
    content = innocent.read_bytes()
    data = {point for span in (*regions[0].values(), *regions[1]) for point in span}
    points = [point for point in range(len(content)) if point not in data and content[point]]
    outcomes = judge([flipped(content, [rng.choice(points)], rng) for _ in range(60 * many)])
    assert "refused" in outcomes


def test_flipped_bytes_of_a_payload_are_found_by_its_hash(innocent, judge, regions):
    rng = random.Random(3)  # noqa: S311  seeded on purpose
    content = innocent.read_bytes()
    points = [point for span in regions[1] for point in span]
    assert set(judge([flipped(content, [rng.choice(points)], rng) for _ in range(30)])) == {"refused"}


@pytest.mark.parametrize("many", MANY)
def test_blocks_of_zeros_and_of_noise(innocent, judge, many):
    rng = random.Random(4)  # noqa: S311  seeded on purpose
    content = innocent.read_bytes()
    damaged = []
    for number in range(20 * many):
        start, length = rng.randrange(len(content)), rng.choice([4, 64, 512, 4096])
        block = bytes(length) if number % 2 else rng.randbytes(length)
        damaged.append((content[:start] + block + content[start + length :])[: len(content)])
    assert "refused" in judge(damaged)


@pytest.mark.parametrize("many", MANY)
def test_blocks_copied_elsewhere(innocent, judge, many):
    rng = random.Random(5)  # noqa: S311  seeded on purpose
    content = innocent.read_bytes()
    damaged = []
    for _ in range(20 * many):
        source, target = rng.randrange(len(content)), rng.randrange(len(content))
        block = content[source : source + rng.choice([8, 64, 512])]
        damaged.append((content[:target] + block + content[target + len(block) :])[: len(content)])
    assert "refused" in judge(damaged)
