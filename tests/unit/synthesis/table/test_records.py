import numpy as np
import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.synthesis.scores import counted, errors
from duckdb_dp.synthesis.table import fitting, records
from duckdb_dp.synthesis.table.views import Pairs

RNG = np.random.default_rng


def objective(domain: Domain, codes: Codes, targets: dict[tuple[str, ...], Array]) -> float:
    found = counted(domain, codes)
    return sum(
        float(((found(pair).reshape(table.shape) - table) ** 2 / (table + 1)).sum()) for pair, table in targets.items()
    )


@pytest.fixture
def targets(domain: Domain, codes: Codes) -> dict[tuple[str, ...], Array]:
    found = counted(domain, codes)
    return {pair: found(pair).reshape(domain.shape(pair)) for pair in [("a", "b"), ("b", "c"), ("a", "d"), ("c", "d")]}


def test_records_reach_the_targets(domain: Domain, codes: Codes, targets: dict[tuple[str, ...], Array]) -> None:
    start = np.stack([RNG(i).permutation(column) for i, column in enumerate(codes.T)], axis=1)
    before = start.copy()
    found = fitting.fit(start, domain, targets, RNG(0), 200)
    assert np.array_equal(start, before)
    assert objective(domain, found, targets) < 0.01 * objective(domain, start, targets)
    assert errors(counted(domain, codes), counted(domain, found), list(targets)).max() < 0.03
    assert np.array_equal(found[:, 4], start[:, 4])  # an attribute in no target stays


def test_more_sweeps_do_not_hurt(domain: Domain, codes: Codes, targets: dict[tuple[str, ...], Array]) -> None:
    start = np.stack([RNG(i).permutation(column) for i, column in enumerate(codes.T)], axis=1)
    reached = [objective(domain, fitting.fit(start, domain, targets, RNG(0), n), targets) for n in (1, 5, 20)]
    assert reached[0] > reached[1] > reached[2]


def test_exact_records_are_left_alone(domain: Domain, codes: Codes, targets: dict[tuple[str, ...], Array]) -> None:
    assert np.array_equal(fitting.fit(codes, domain, targets, RNG(0), 3), codes)


def test_targets_are_scaled_to_the_records(domain: Domain, codes: Codes, targets: dict[tuple[str, ...], Array]) -> None:
    one = fitting.fit(codes[:500], domain, targets, RNG(0), 5)
    other = fitting.fit(codes[:500], domain, {pair: 7 * table for pair, table in targets.items()}, RNG(0), 5)
    assert np.array_equal(one, other)


def test_a_step_moves_the_share_that_is_best() -> None:
    rng, domain = RNG(3), Domain({"a": 4, "b": 6, "c": 3})
    codes = np.stack([rng.integers(0, n, 300) for n in domain.sizes.values()], axis=1).astype(np.int32)
    targets = {pair: rng.gamma(0.5, size=domain.shape(pair)) * 40 for pair in [("a", "b"), ("a", "c")]}
    pairs, cells = Pairs.of(codes, domain, targets), 36
    left, entered = rng.integers(0, cells, (200, 2)), rng.integers(0, cells, (200, 2))
    change = np.bincount(entered.reshape(-1), minlength=cells) - np.bincount(left.reshape(-1), minlength=cells)
    out, into, none = pairs.weights[left], pairs.weights[entered], np.zeros((200, 1), np.int64)
    moves = fitting._Moves(
        of=none[:, 0], values=left, old=none, new=none, left=left, entered=entered, out=out, into=into
    )
    steps = np.linspace(0, 1, 2001)[:, None]
    found = []
    for pull in (0.02, 0.5, 20.0):  # towards where the moves lead: far behind, on the way, and far beyond
        pairs.gaps[:] = rng.normal(0, 0.01, cells) - pull * change
        sums = (pairs.weights * (pairs.gaps + steps * change) ** 2).sum(axis=1)
        alone = (out * (pairs.gaps[left] - 0.5) - into * (pairs.gaps[entered] + 0.5)).sum(axis=1)
        (share,) = fitting._shares(pairs, moves, alone, none[:, 0], 1)
        found.append(float(share))
        assert found[-1] == pytest.approx(float(steps[sums.argmin(), 0]), abs=1e-3)
        assert not pairs.change.any()
    assert found[0] < found[1] < found[2] == 1.0


def test_large_attributes_move_few_records_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "ENTRIES", 1000)
    domain = Domain({"a": 100, "b": 2})
    codes = np.zeros((2000, 2), dtype=np.int32)
    found = fitting.fit(codes, domain, {("a", "b"): np.full((100, 2), 10.0)}, RNG(0), 400)
    assert errors(counted(domain, found), lambda clique: np.ones(200), [("a", "b")])[0] < 0.4


def test_what_is_known_of_the_pairs_stays_true(
    domain: Domain, codes: Codes, targets: dict[tuple[str, ...], Array]
) -> None:
    start = np.asfortranarray(np.stack([RNG(i).permutation(column) for i, column in enumerate(codes.T)], axis=1))
    pairs, shares = Pairs.of(start, domain, targets), []
    steps = [(view, few) for view in pairs.views for few in (np.arange(len(view.others)), np.array([0]))]
    assert max(len(few) for _, few in steps) > 1
    for i, (view, few) in enumerate(steps):
        part = RNG(i).choice(len(start), (len(few), len(start) // 3), replace=False)
        shares += fitting._step(start, view, few, part, pairs, RNG(i)).tolist()
    assert 0 < min(shares) < 1
    again = Pairs.of(start, domain, targets)
    np.testing.assert_allclose(pairs.gaps, again.gaps, atol=1e-9)
    np.testing.assert_allclose(pairs.costs, again.costs, rtol=1e-6)
    np.testing.assert_allclose(pairs.held, again.held, rtol=1e-4)
    # Every cell of a pair is seen twice, and has a cost where its attribute has the value.
    assert 2 * sum(table.size for table in targets.values()) == 2 * len(pairs.gaps) == np.isfinite(pairs.costs).sum()
    squares = float((pairs.weights * pairs.gaps**2).sum())
    assert squares == pytest.approx(objective(domain, start, targets))


def test_an_attribute_is_seen_as_its_pairs_say(
    domain: Domain, codes: Codes, targets: dict[tuple[str, ...], Array]
) -> None:
    """The cost of a record's value, and the weights that it has, looked up by the views, are those of the tables."""
    pairs, names = Pairs.of(codes, domain, targets), list(domain.attributes)
    found = counted(domain, codes)
    for view in pairs.views:
        for place, attribute in enumerate(view.attributes.tolist()):
            near = view.others[place]
            seen = pairs.costs[view.span].reshape(-1, view.n)[view.rows[place] + codes[0, near]].sum(axis=0)
            cost, held = np.zeros(domain.sizes[names[attribute]]), 0.0
            for other in near.tolist():
                pair = domain.clique((names[attribute], names[other]))
                table, counts = targets[pair], found(pair).reshape(domain.shape(pair))
                weight, turned = 1 / (table + 1), pair[0] != names[attribute]
                of = (weight * (counts - table + 0.5)).T if turned else weight * (counts - table + 0.5)
                cost += of[:, codes[0, other]]
                held += float((weight.T if turned else weight)[codes[0, attribute], codes[0, other]])
            assert seen[: len(cost)] == pytest.approx(cost, rel=1e-4)
            assert np.isinf(seen[len(cost) :]).all()
            assert pairs.held[0, attribute] == pytest.approx(held, rel=1e-4)


@pytest.mark.parametrize(
    ("work", "near", "sweeps"), [((0, 0), 0, 1), ((0, 1e18), np.inf, 1), ((0, 1e18), 0, fitting.SWEEPS)]
)
def test_sweeps_end_by_the_work(
    monkeypatch: pytest.MonkeyPatch,
    domain: Domain,
    codes: Codes,
    targets: dict[tuple[str, ...], Array],
    work: tuple[float, float],
    near: float,
    sweeps: int,
) -> None:
    """After little work where records are near, and after much where they are not."""
    monkeypatch.setattr(fitting, "WORK", work)
    monkeypatch.setattr(fitting, "NEAR", near)
    monkeypatch.setattr(fitting, "CLOSE", 0)
    codes = codes[:40]
    start = np.stack([RNG(i).permutation(column) for i, column in enumerate(codes.T)], axis=1)
    found = fitting.fit(start, domain, targets, RNG(3))
    assert np.array_equal(found, fitting.fit(start, domain, targets, RNG(3), sweeps))


def test_records_that_are_close_are_left_alone(
    domain: Domain, codes: Codes, targets: dict[tuple[str, ...], Array]
) -> None:
    assert np.array_equal(fitting.fit(codes, domain, targets, RNG(0)), codes)


def test_copies() -> None:
    codes = np.arange(10, dtype=np.int32)[:, None]
    found = records.copies(codes, 34, RNG(0))
    counts = np.bincount(found[:, 0])
    assert sorted(counts) == [3] * 6 + [4] * 4


@pytest.mark.parametrize("rows", [0, 1, 7, 2**17, 2**17 + 1, 200_000, 200_001, 10**6 + 3, 10**8])
def test_every_record_has_equally_many_copies(rows: int) -> None:
    """But for less than one each in the remainder: where half of the records have one copy more, pairs are off by what that adds."""
    few = records.fitted(rows)
    assert few <= records.ROWS
    assert few == rows or few > records.ROWS / 2
    most = -(-rows // max(few, 1))
    assert most * few - rows < max(most, 1)


def test_as_many_pairs_are_fitted_as_the_work_allows() -> None:
    """All pairs of many small attributes; of large ones those from which the records are farthest."""
    bits = Domain({f"a{i}": 2 for i in range(40)})
    codes = np.asfortranarray(RNG(0).integers(0, 2, (5000, 40)), dtype=np.int32)
    pairs = {(a, b): np.ones((2, 2)) for i, a in enumerate(bits.attributes) for b in bits.attributes[i + 1 :]}
    assert records.farthest(codes, bits, pairs) == pairs
    near, far = {("a0", "a1"): np.ones((2, 2)), ("a2", "a3"): np.ones((2, 2))}, {("a1", "a2"): np.eye(2) + 1e-9}
    one = fitting.work(codes, (2, 2))
    assert list(records.farthest(codes, bits, near | far, one)) == list(far)
    assert next(iter(records.farthest(codes, bits, near | far, 2.5 * one))) == ("a1", "a2")
    assert len(records.farthest(codes, bits, near | far, 2.5 * one)) == 2
