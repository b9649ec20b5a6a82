"""AIM+GReM's published figures against ours, and its post-processing: python benchmarks/accuracy/aim_grem.py [section ...].

All noise is exact and from the operating system. Errors are the mean over the marginals of L1 / rows. epsilon = 1 and
delta = 1e-9 are rho 0.014973 of zCDP, as in the paper. Times are CPU seconds of this process and all its threads, which
other work on the machine does not change much; those of Figure 3, the fastest of many, are on the wall.
"""

import argparse
import csv
import functools
import importlib.util
import itertools
import json
import math
import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from duckdb_dp import Budget, Domain, Workload
from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.adaptive import MECHANISMS, Options
from duckdb_dp.counting.counts import Counts, words
from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array, Centring, Identity
from duckdb_dp.noise.uniform import SystemEntropy
from duckdb_dp.plan.crp import conditional
from duckdb_dp.plan.residual import residual
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.grem import ResidualEstimates, centred, decompose
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.reconstruct.postprocess import KINDS, postprocess

SHARED = Path(__file__).parents[3] / "shared"
DELTA = 1e-9
EPSILONS = (0.1, 0.31, 1.0, 3.16, 10.0, 31.6)


class Table:
    """Coded records: exact marginals for the error, and a door to them."""

    def __init__(self, name: str, sizes: Mapping[str, int], records: Array) -> None:
        self.name, self.domain, self.records = name, Domain(sizes), records.astype(np.int64)
        self.exact = functools.cache(self._exact)

    def _exact(self, clique: Clique) -> Array:
        place = {name: i for i, name in enumerate(self.domain.sizes)}
        keys = np.zeros(len(self.records), dtype=np.int64)
        for name in clique:
            keys = keys * self.domain.sizes[name] + self.records[:, place[name]]
        found = np.bincount(keys, minlength=self.domain.cells(clique))
        return found.reshape(self.domain.shape(clique)).astype(np.float64)

    @functools.cached_property
    def counts(self) -> Counts:
        distinct, counts = np.unique(self.records, axis=0, return_counts=True)
        place = {name: i for i, name in enumerate(self.domain.sizes)}
        groups = words(self.domain, self.domain.attributes)
        keys = np.zeros((len(distinct), len(groups)), dtype=np.int64)
        for column, group in enumerate(groups):
            for name in group:
                keys[:, column] = keys[:, column] * self.domain.sizes[name] + distinct[:, place[name]]
        return Counts(self.domain, {self.domain.attributes: (keys.reshape(-1), np.repeat(counts, len(groups)))})

    def queryable(self, rho: float) -> PrivateQueryable:
        return PrivateQueryable(self.counts, total=rho, accounting=ZCDP, rows=1, bits=SystemEntropy())

    def error(self, read: Callable[[Clique], Array], cliques: Iterable[Clique]) -> float:
        """Mean over the marginals of L1 / rows."""
        return float(np.mean([np.abs(read(c) - self.exact(c)).sum() for c in cliques])) / len(self.records)


def rho_of(epsilon: float) -> float:
    return ZCDP.cost(Budget(epsilon=epsilon, delta=DELTA))


# Data


def columns_of(path: Path, names: Sequence[str] | None = None, delimiter: str = ",") -> dict[str, list[str]]:
    with path.open(encoding="latin-1", newline="") as file:
        rows = list(csv.reader(file, delimiter=delimiter))
    header, body = (rows[0], rows[1:]) if names is None else (list(names), rows)
    return dict(zip(header, map(list, zip(*body, strict=True)), strict=True))


def coded(values: Sequence[str], most: int = 64, bins: int = 16) -> tuple[int, Array]:
    """(size, codes): the values themselves if they are few; else equal bins of numbers, or the commonest texts."""
    distinct, codes, counts = np.unique(np.array(values), return_inverse=True, return_counts=True)
    if len(distinct) <= most:
        return len(distinct), codes
    try:
        numbers = np.array([float(value) if value else math.nan for value in values])
    except ValueError:
        rank = np.empty(len(distinct), dtype=np.int64)
        rank[np.argsort(-counts, kind="stable")] = np.arange(len(distinct))
        return bins, np.minimum(rank[codes], bins - 1)
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    cells = np.minimum((numbers - low) / (high - low) * bins, bins - 1)
    return bins + 1, np.where(np.isnan(cells), bins, cells).astype(np.int64)


def table_of(name: str, columns: Mapping[str, Sequence[str]], chosen: Sequence[str] | None = None) -> Table:
    found = {column: coded(columns[column]) for column in chosen or columns}
    return Table(
        name, {column: size for column, (size, _) in found.items()}, np.stack([c for _, c in found.values()], 1)
    )


@functools.cache
def adult() -> Table:
    """The paper's Adult: integers, with the sizes that occur."""
    return table_of("adult", columns_of(SHARED / "data/adult/adult_small.csv"))


@functools.cache
def titanic() -> Table:
    columns = columns_of(SHARED / "data/titanic/titanic.csv")
    sizes = json.loads((SHARED / "data/titanic/titanic-domain.json").read_text())
    records = np.stack([np.array(values, dtype=np.int64) for values in columns.values()], axis=1)
    return Table("titanic", {name: sizes[name] for name in columns}, records)


def others() -> list[Table]:
    data = SHARED / "data"
    people, players = columns_of(data / "baseball/People.csv"), columns_of(data / "worldcup/players.csv")
    players["birth"] = [date[:3] for date in players["birth_date"]]
    user = ("user", "age", "gender", "occupation", "zip")
    users = columns_of(data / "movielens-100k/u.user", user, "|")
    users["region"] = [code[0] for code in users["zip"]]
    teams = "yearID lgID divID Rank W L DivWin LgWin R HR ERA attendance"
    born = "birthYear birthMonth birthCountry birthState weight height bats throws"
    played = "female goal_keeper defender midfielder forward count_tournaments birth"
    return [
        table_of("pums", columns_of(data / "pums/PUMS.csv")),
        table_of("baseball people", people, born.split()),
        table_of("baseball teams", columns_of(data / "baseball/Teams.csv"), teams.split()),
        table_of("worldcup players", players, played.split()),
        table_of(
            "worldcup squads",
            columns_of(data / "worldcup/squads.csv"),
            ["tournament_id", "position_code", "shirt_number"],
        ),
        table_of("movielens users", users, ["age", "gender", "occupation", "region"]),
    ]


def loans(rows: int = 42_535, attributes: int = 43, size: int = 50, seed: int = 1) -> Table:
    """Generated: attributes of about 50 values, skewed, each leaning on an earlier one."""
    rng = np.random.default_rng(seed)
    sizes = {f"a{i}": int(n) for i, n in enumerate(rng.integers(size - 10, size + 11, attributes))}
    columns: list[Array] = []
    for i, n in enumerate(sizes.values()):
        own = rng.geometric(0.08, rows) % n
        follows = rng.random(rows) < 0.4
        columns.append(np.where(follows, columns[rng.integers(i)] * 7 % n, own) if i else own)
    return Table("loans-like", sizes, np.stack(columns, axis=1))


# Mechanisms and post-processing


def planned(table: Table, workload: Workload, rho: float) -> tuple[LinearMeasurement, ...]:
    """Noisy residuals of the static optimal plan."""
    queryable = table.queryable(rho)
    measured = residual(workload, 2 * rho).measurements
    return tuple(queryable.measure(m.clique, m.strategy, m.cost / 2) for m in measured)


def adaptive(name: str, table: Table, workload: Workload, rho: float) -> tuple[LinearMeasurement, ...]:
    return MECHANISMS[name](table.queryable(rho), workload, Options()).measured


RUN: Mapping[str, Callable[[Table, Workload, float], tuple[LinearMeasurement, ...]]] = {
    "residual": planned,
    "aim": functools.partial(adaptive, "aim"),
}


def timed(work: Callable[[], Any], clock: Callable[[], float] = process_time) -> tuple[float, Any]:
    start = clock()
    found = work()
    return clock() - start, found


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# Sections


def table2(runs: int = 3) -> None:
    """A fixed sequence: half the budget on the 1-way marginals, half on all 3-way ones in lexicographic order."""
    published = json.loads((SHARED / "reference/published.json").read_text())["aim_grem"]["rows"][0]
    table, rho = adult(), rho_of(1.0)
    workload = Workload.all_k_way(table.domain, 3)
    table.error(lambda c: np.zeros(table.domain.shape(c)), workload.cliques)  # counts for the error are not timed
    ways = {"lazy+CRP": (sequence_crp, False), "lazy+IID": (sequence_iid, False), "full+IID": (sequence_iid, True)}
    print(f"\nTable 2: Adult, {len(workload.cliques)} 3-way marginals in a fixed sequence, mean of {runs} runs")
    print(f"{'':<12}{'published s':>12}{'ours s':>9}{'published error':>17}{'ours':>9}{'closed form':>13}")
    for index, (name, (way, full)) in enumerate(ways.items()):
        found = [timed(lambda: way(table, workload, rho, full)) for _ in range(1 if full else runs)]  # noqa: B023
        seconds = min(seconds for seconds, _ in found)
        errors = [table.error(estimates.__getitem__, workload.cliques) for _, (estimates, _) in found]
        components = found[0][1][1]
        form = expected(table, workload.cliques, components)
        shown = published[4 if name == "lazy+CRP" else 5]
        print(
            f"{name:<12}{published[1 + index]:>12}{seconds:>9.2f}{shown:>17}{np.mean(errors):>9.3f}{form:>13.3f}",
            flush=True,
        )


def expected(table: Table, cliques: Sequence[Clique], components: ResidualEstimates) -> float:
    """Mean L1 / rows of marginals whose residuals were all measured: sqrt(2/pi) * stddev * cells, averaged."""
    sums = [math.sqrt(components.variance(clique)) * table.domain.cells(clique) for clique in cliques]
    return math.sqrt(2 / math.pi) * float(np.mean(sums)) / len(table.records)


Sequence2 = tuple[dict[Clique, Array], ResidualEstimates]


def first_half(queryable: PrivateQueryable, domain: Domain, rho: float) -> ResidualEstimates:
    noisy: list[LinearMeasurement] = []
    for name, size in domain.sizes.items():
        noisy += decompose(domain, queryable.measure((name,), Identity(size), rho / len(domain.sizes)))
    return ResidualEstimates.of(domain, noisy)


def sequence_crp(table: Table, workload: Workload, rho: float, full: bool) -> Sequence2:
    """Nobody reads an estimate before the end, so that lazy updating is one reconstruction at the end."""
    queryable, domain = table.queryable(rho), table.domain
    components = first_half(queryable, domain, rho / 2)
    values, precisions = dict(components.values), dict(components.precisions)
    beta = rho / len(workload.cliques)
    for clique in workload.cliques:
        new = []
        for tau, variance in conditional(domain, clique, beta, precisions).items():
            strategy = Centring(domain.shape(tau))
            new.append(queryable.measure(tau, strategy, strategy.squared_sensitivity / variance / 2))
        some = {one.clique for one in new} & values.keys()
        old = ResidualEstimates(
            domain=domain, values={t: values[t] for t in some}, precisions={t: precisions[t] for t in some}
        ).added(new)
        values |= old.values
        precisions |= old.precisions
    components = ResidualEstimates(domain=domain, values=values, precisions=precisions)
    return {clique: components.marginal(clique) for clique in workload.cliques}, components


def sequence_iid(table: Table, workload: Workload, rho: float, full: bool) -> Sequence2:
    """Independent noise on every marginal; ``full`` reconstructs all of them after each measurement."""
    queryable, domain = table.queryable(rho), table.domain
    components = first_half(queryable, domain, rho / 2)
    estimates: dict[Clique, Array] = {}
    for clique in workload.cliques:
        noisy = queryable.measure(clique, Identity(domain.cells(clique)), rho / 2 / len(workload.cliques))
        components = components.added(decompose(domain, noisy))
        if full:
            estimates = {wanted: components.marginal(wanted) for wanted in workload.cliques}
    return estimates or {clique: components.marginal(clique) for clique in workload.cliques}, components


def budgets(runs: int = 3, plot: Path | None = None) -> None:
    """The whole mechanism against the static plan, unbiased, at six budgets."""
    table = adult()
    workload = Workload.all_k_way(table.domain, 3)
    print(f"\nAll 3-way marginals of Adult, unbiased, mean L1 / rows of {runs} runs")
    print(f"{'epsilon':>8}{'residual':>11}{'aim':>11}{'ratio':>8}{'aim s':>8}{'rounds':>8}")
    lines = []
    for epsilon in EPSILONS:
        rho = rho_of(epsilon)
        static = expected(table, workload.cliques, ResidualEstimates.of(table.domain, planned(table, workload, rho)))
        outcomes = [timed(lambda: MECHANISMS["aim"](table.queryable(rho), workload, Options())) for _ in range(runs)]  # noqa: B023
        errors = [
            table.error(ResidualEstimates.of(table.domain, found.measured).marginal, workload.cliques)
            for _, found in outcomes
        ]
        seconds, rounds = min(s for s, _ in outcomes), np.mean([len(found.rounds) for _, found in outcomes])
        lines.append((epsilon, static, float(np.mean(errors))))
        print(
            f"{epsilon:>8}{static:>11.4f}{lines[-1][2]:>11.4f}{lines[-1][2] / static:>8.3f}{seconds:>8.2f}{rounds:>8.0f}",
            flush=True,
        )
    if plot:
        draw(lines, plot)


def draw(lines: Sequence[tuple[float, float, float]], path: Path) -> None:
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(5, 4), layout="constrained")).subplots()
    for column, name in ((1, "residual"), (2, "aim")):
        axes.loglog([line[0] for line in lines], [line[column] for line in lines], "o-", label=name)
    axes.set(xlabel="epsilon (delta 1e-9)", ylabel="mean L1 / rows", title="All 3-way marginals of Adult")
    axes.legend()
    figure.savefig(path)
    print(f"plot: {path}")


def in_axis() -> None:
    """Figure 3: decompose and reconstruct by in-axis operations against the Kronecker mat-vec of their matrices."""
    print("\nFigure 3: microseconds, in-axis against Kronecker mat-vec")
    print(
        f"{'sizes':<14}{'decompose':>11}{'Kronecker':>11}{'ratio':>7}{'reconstruct':>13}{'Kronecker':>11}{'ratio':>7}"
    )
    shapes = [(16,) * k for k in range(2, 8)] + [(n,) * 3 for n in (2, 4, 8, 16, 32, 64, 128, 256)]
    for shape in shapes:
        sub, centre_matrix = [sub_matrix(n) for n in shape], [np.linalg.pinv(sub_matrix(n)) for n in shape]
        table = np.random.default_rng(1).normal(size=shape)
        small = kronecker(sub, table)
        domain = Domain({f"a{i}": n for i, n in enumerate(shape)})
        component = ResidualEstimates(domain=domain, values={domain.attributes: centred(table)}, precisions={})
        ours = component.marginal(domain.attributes)
        assert np.allclose(ours.reshape(shape), kronecker(centre_matrix, small))
        times = [
            fastest(lambda: centred(table)),  # noqa: B023
            fastest(lambda: kronecker(sub, table)),  # noqa: B023
            fastest(lambda: component.marginal(domain.attributes)),  # noqa: B023
            fastest(lambda: kronecker(centre_matrix, small)),  # noqa: B023
        ]
        a, b, c, d = (1e6 * t for t in times)
        label = f"{shape[0]}^{len(shape)}"
        print(f"{label:<14}{a:>11.1f}{b:>11.1f}{b / a:>7.1f}{c:>13.1f}{d:>11.1f}{d / c:>7.1f}", flush=True)


def sub_matrix(n: int) -> Array:
    return np.hstack([-np.ones((n - 1, 1)), np.eye(n - 1)])


def kronecker(matrices: Sequence[Array], table: Array) -> Array:
    """(M_1 (x) ... (x) M_k) x by the shuffle algorithm: a matrix product along each axis."""
    for axis, matrix in enumerate(matrices):
        table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
    return np.ascontiguousarray(table)


def fastest(work: Callable[[], object]) -> float:
    seconds, _ = timed(work, perf_counter)
    return min([seconds, *(timed(work, perf_counter)[0] for _ in range(min(200, int(1 / max(seconds, 1e-6)))))])


def processed(runs: int = 5) -> None:
    """Errors and times after post-processing, at epsilon 1."""
    rho = rho_of(1.0)
    print(f"\nPost-processing at epsilon 1, delta 1e-9: mean L1 / rows of {runs} runs, seconds with noise and reading")
    print(f"{'data, asked':<22}{'measured':<20}" + "".join(f"{kind:>12}{'s':>7}" for kind in KINDS))
    two, three = (Workload.all_k_way(adult().domain, k) for k in (2, 3))
    titanic3 = Workload.all_k_way(titanic().domain, 3)
    cases = [
        (adult(), two, "residual", two),
        (adult(), two, "aim", two),
        (adult(), three, "residual", three),
        (adult(), three, "residual", two),
        (adult(), three, "aim", three),
        (titanic(), titanic3, "residual", titanic3),
        (titanic(), titanic3, "aim", titanic3),
    ]
    for table, wanted, mechanism, measured in cases:
        asked = f"{table.name} {len(wanted.cliques)} {len(wanted.cliques[0])}-way"
        name = mechanism + ("" if measured is wanted else f" on {len(measured.cliques)} pairs")
        print(f"{asked:<22}{name:<20}" + quality(table, wanted, mechanism, measured, rho, runs), flush=True)
    print(f"most memory of this process: {peak_mb():.0f} MB")


def quality(table: Table, wanted: Workload, mechanism: str, measured: Workload, rho: float, runs: int) -> str:
    """One column pair per post-processing: error and seconds of drawing the noise and reading all marginals."""
    errors: dict[str, list[float]] = {kind: [] for kind in KINDS}
    seconds = dict.fromkeys(KINDS, math.inf)
    table.error(lambda c: np.zeros(table.domain.shape(c)), wanted.cliques)
    for _ in range(runs):
        drawing, noisy = timed(lambda: RUN[mechanism](table, measured, rho))
        for kind in KINDS:
            reading, found = timed(lambda: read_all(kind, table, wanted, noisy))  # noqa: B023
            seconds[kind] = min(seconds[kind], drawing + reading)
            errors[kind].append(table.error(found.__getitem__, wanted.cliques))
    return "".join(f"{np.mean(errors[kind]):>12.4f}{seconds[kind]:>7.2f}" for kind in KINDS)


def read_all(kind: str, table: Table, wanted: Workload, noisy: Sequence[LinearMeasurement]) -> dict[Clique, Array]:
    read = postprocess(kind, table.domain, wanted.cliques, noisy)
    return {clique: read(clique) for clique in wanted.cliques}


def fitted_by(name: str, table: Table, workload: Workload, rho: float) -> dict[Clique, Array]:
    """Run a mechanism and read its fitted marginals."""
    return read_all("fitted", table, workload, RUN[name](table, workload, rho))


def datasets(runs: int = 3) -> None:
    """A plan and 'aim', fitted, on several data sets."""
    print(f"\nFitted marginals on several data sets, mean L1 / rows of {runs} runs")
    print(
        f"{'data':<18}{'rows':>7}{'epsilon':>9}{'asked':>7}" + "".join(f"{name:>10}" for name in (*RUN, "res. pairs"))
    )
    for table in [adult(), titanic(), *others()]:
        for epsilon, order in itertools.product((0.31, 1.0, 3.16), (2, 3)):
            wanted, rho = Workload.all_k_way(table.domain, order), rho_of(epsilon)
            two = Workload.all_k_way(table.domain, 2)
            cases = [*((name, wanted) for name in RUN), *([("residual", two)] if order == 3 else [])]
            found = [
                np.mean(
                    [
                        table.error(
                            read_all("fitted", table, wanted, RUN[name](table, measured, rho)).__getitem__,
                            wanted.cliques,
                        )
                        for _ in range(runs)
                    ]
                )
                for name, measured in cases
            ]
            print(
                f"{table.name:<18}{len(table.records):>7}{epsilon:>9}{order:>6}w"
                + "".join(f"{e:>10.4f}" for e in found),
                flush=True,
            )


def graphical(limit: float = 600) -> None:
    """Private-PGM's AIM of the mbi package, if it is installed, on the same data and budget, for so many CPU seconds each."""
    if importlib.util.find_spec("mbi") is None:
        print("\nPrivate-PGM's AIM: the package mbi is not installed (pip install mbi)")
        return
    from aim_pgm import aim_pgm

    rho = rho_of(1.0)
    print("\nAgainst Private-PGM's AIM, epsilon 1: mean L1 / rows of one run and CPU seconds")
    print(f"{'data, asked':<22}{'AIM PGM':>10}{'s':>8}{'aim fitted':>12}{'s':>7}")
    for table, order in ((titanic(), 3), (adult(), 2)):
        workload = Workload.all_k_way(table.domain, order)
        late = ""
        try:
            seconds, read = timed(lambda: aim_pgm(table.queryable(rho), workload, limit))  # noqa: B023
            line = f"{table.error(read, workload.cliques):>10.4f}{seconds:>8.1f}"
        except TimeoutError as error:
            line, late = f"{'-':>10}{'-':>8}", f"  AIM PGM: {error}"
        took, found = timed(functools.partial(fitted_by, "aim", table, workload, rho))
        line += f"{table.error(found.__getitem__, workload.cliques):>12.4f}{took:>7.2f}"
        print(f"{table.name + f' {len(workload.cliques)} {order}-way':<22}{line}{late}", flush=True)


def large() -> None:
    """Loans-like: 12,341 3-way marginals, residuals only; nothing but the marginal at hand is built."""
    table = loans()
    workload = Workload.all_k_way(table.domain, 3)
    cells = sum(map(table.domain.cells, workload.cliques))
    print(
        f"\nLoans-like: {len(workload.cliques):,} 3-way marginals, {cells:,} cells, {8 * cells / 2**30:.1f} GB as doubles"
    )
    seconds, found = timed(lambda: MECHANISMS["aim"](table.queryable(rho_of(1.0)), workload, Options()))
    print(
        f"aim: {seconds:.0f} s, {len(found.rounds)} rounds, {len(found.measured):,} residuals, most memory {peak_mb():.0f} MB",
        flush=True,
    )
    for kind in ("unbiased", "fitted"):
        read = postprocess(kind, table.domain, workload.cliques, found.measured)
        sample = workload.cliques[:: len(workload.cliques) // 100]
        print(
            f"{kind}: error on {len(sample)} marginals {table.error(read, sample):.3f}, most memory {peak_mb():.0f} MB",
            flush=True,
        )


SECTIONS: Mapping[str, Callable[[], None]] = {
    "table2": table2,
    "budgets": budgets,
    "in_axis": in_axis,
    "processed": processed,
    "datasets": datasets,
    "graphical": graphical,
    "large": large,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; all but 'large' if none is named")
    parser.add_argument("--limit", type=float, default=600, help="CPU seconds for each run of Private-PGM's AIM")
    parser.add_argument("--plot", type=Path, help="where to draw the errors by budget, such as aim.png")
    arguments = parser.parse_args()
    for name in arguments.sections or [name for name in SECTIONS if name != "large"]:
        if name == "budgets":
            budgets(plot=arguments.plot)
        elif name == "graphical":
            graphical(arguments.limit)
        else:
            SECTIONS[name]()


if __name__ == "__main__":
    main()
