"""Draw the README's picture from a real run: python docs/images/make_picture.py [file]. Exact counts are of public data."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import duckdb_dp

TARGET = Path(__file__).parent / "release.svg"
DATA = Path(duckdb_dp.__file__).parent / "data_files" / "adult.parquet"

DECLARED = """
CALL dp_protect('adult', epsilon := 3, delta := 1e-9);
CALL dp_attribute('adult', 'age', low := 15, high := 90, step := 5);
CALL dp_attribute('adult', 'income', "values" := ['<=50K', '>50K']);
"""
COUNTS = "FROM dp_marginals('adult', ['age', 'income'], epsilon := 0.1)"
EXACT = "SELECT count(*) AS exact FROM adult WHERE income = '>50K' GROUP BY least(age, 89) // 5 ORDER BY least(age, 89) // 5"
RANGES = "FROM dp_queries('adult', [{'age': 'range'}], epsilon := 0.1)"
CELLS = "SELECT stddev FROM dp_explain('adult', ['age'], epsilon := 0.1)"


def counts(axes: Axes, con: duckdb.DuckDBPyConnection) -> None:
    """Noisy counts with their intervals, and the exact ones."""
    shown = con.sql(f"FROM ({COUNTS}) WHERE income = '>50K'").fetchnumpy()
    exact = con.sql(EXACT).fetchnumpy()["exact"]
    axes.bar(shown["age"], shown["count"], color="#9ecae1", label="released")
    axes.errorbar(
        shown["age"], shown["count"], yerr=1.96 * shown["stddev"], fmt="none", ecolor="#08519c", capsize=2,
        label="its 95 % interval",
    )  # fmt: skip
    axes.plot(np.arange(exact.size), exact, "kD", markersize=3, label="exact (public data)")
    axes.set_title("People above 50K by age, epsilon 0.1")
    axes.tick_params(axis="x", rotation=90)
    axes.legend()


def errors(axes: Axes, con: duckdb.DuckDBPyConnection) -> None:
    """Error of every interval of ages, beside that of adding up noisy cells."""
    shown = con.sql(RANGES).fetchnumpy()
    length = (shown["age_to"].astype(float) - shown["age_from"].astype(float)) / 5
    ((cell,),) = con.sql(CELLS).fetchall()
    groups = np.arange(1, 16)
    axes.plot(groups, cell * np.sqrt(groups), "k--", label="sums of noisy cells")
    axes.plot(length, shown["stddev"], ".", color="#08519c", label="planned together")
    axes.set(title="Error of all 120 intervals of ages, epsilon 0.1", xlabel="age groups in the interval")
    axes.set(ylabel="standard deviation", ylim=(0, None))
    axes.legend()


def main(target: Path) -> None:
    """Run and draw."""
    mpl.rcParams["svg.hashsalt"] = "release"
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    with TemporaryDirectory() as folder, duckdb.connect() as con:
        duckdb_dp.load(con, ledger=Path(folder) / "picture.dp")
        con.execute(f"CREATE TABLE adult AS FROM '{DATA}'")
        for statement in con.extract_statements(DECLARED):
            con.execute(statement).fetchall()
        counts(left, con)
        errors(right, con)
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
