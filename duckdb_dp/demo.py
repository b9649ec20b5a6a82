"""The demo: private marginals of the UCI Adult data, from the declarations to the ledger."""

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

import duckdb_dp

if TYPE_CHECKING:
    from rich.console import Console

DATA = Path(__file__).parent / "data_files" / "adult.parquet"

DECLARATIONS = """\
CREATE TABLE IF NOT EXISTS adult AS FROM '{data}';
CALL dp_protect('adult', epsilon := 3, delta := 1e-9);
CALL dp_attribute('adult', 'age', low := 15, high := 90, step := 5);
CALL dp_attribute('adult', 'education', "values" := [
    'Preschool', '1st-4th', '5th-6th', '7th-8th', '9th', '10th', '11th', '12th',
    'HS-grad', 'Some-college', 'Assoc-voc', 'Assoc-acdm', 'Bachelors',
    'Masters', 'Prof-school', 'Doctorate']);
CALL dp_attribute('adult', 'marital_status', "values" := [
    'Never-married', 'Married-civ-spouse', 'Married-AF-spouse',
    'Married-spouse-absent', 'Separated', 'Divorced', 'Widowed']);
CALL dp_attribute('adult', 'race', "values" := [
    'Amer-Indian-Eskimo', 'Asian-Pac-Islander', 'Black', 'Other', 'White']);
CALL dp_attribute('adult', 'sex', "values" := ['Female', 'Male']);
CALL dp_attribute('adult', 'income', "values" := ['<=50K', '>50K']);
"""

EXPLAIN = "FROM dp_explain('adult', 'all 2-way', epsilon := 0.5);"
ASK = "FROM dp_marginals('adult', 'all 2-way', epsilon := 0.5, release := 'demo');"
LEDGER = "SELECT release, time, mechanism, epsilon, delta, neighbours, state FROM dp_ledger();"
BUDGET = "SELECT dataset, epsilon_total, epsilon_spent, epsilon_remaining FROM dp_budget();"

EXACT = """
WITH binned AS (SELECT * REPLACE (
    CASE WHEN age >= 85 THEN '[85, 90]' ELSE '[' || age // 5 * 5 || ', ' || age // 5 * 5 + 5 || ')' END AS age
) FROM adult)
SELECT {columns}, count(*) AS exact FROM binned GROUP BY GROUPING SETS ({pairs})
"""
ATTRIBUTES = ("age", "education", "marital_status", "race", "sex", "income")

WIDTH = 46
"""Columns of a terminal bar."""

Rows = list[dict[str, Any]]


def run(folder: Path, console: "Console") -> None:
    """Run the demo in a folder, which keeps the database, its ledger and the picture.

    In a folder of an earlier run the same request is the same release: it costs nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    con = duckdb.connect(folder / "adult.duckdb")
    try:
        _declare(con, console)
        _explain(con, console)
        rows = _ask(con, console)
        _picture(con, console, rows, folder)
        _ask_again(con, console, rows)
        _ledger(con, console)
    finally:
        con.close()
    console.print(f"\nThe database, its ledger (adult.duckdb.dp) and the picture are in [bold]{folder}[/].")


def _declare(con: duckdb.DuckDBPyConnection, console: "Console") -> None:
    console.rule("1. Declare what is private, and which values it may take", align="left")
    duckdb_dp.load(con)
    statements = DECLARATIONS.format(data=str(DATA).replace("'", "''"))
    _show(console, statements)
    for statement in statements.split(";\n"):
        con.execute(statement)
    console.print()


def _explain(con: duckdb.DuckDBPyConnection, console: "Console") -> None:
    console.rule("2. Plan: what an answer will cost, and how good it will be", align="left")
    _show(console, EXPLAIN)
    rows = _rows(con, EXPLAIN)
    table = _table("marginal", "cells", "stddev", "95 % interval", "of the budget")
    for row in rows:
        numbers = f"{row['stddev']:.1f}", f"± {row['half_width']:.1f}", f"{row['budget_share']:.1%}"
        table.add_row(row["marginal"].replace(",", " x "), f"{row['cells']:,}", *numbers)
    console.print(table)
    one = rows[0]
    console.print(
        f"Nothing is spent yet, and no data were read. Asking will cost epsilon {one['epsilon']:.3g} at delta "
        f"{one['delta']:g} (rho {one['rho']:.4g}). The error is {one['ratio_to_gaussian']:.2f} times that of "
        "independent noise on each marginal.\n"
    )


def _ask(con: duckdb.DuckDBPyConnection, console: "Console") -> Rows:
    console.rule("3. Ask: noisy counts with honest error bars", align="left")
    _show(console, ASK)
    start = time.perf_counter()
    rows = _rows(con, ASK)
    seconds = time.perf_counter() - start
    shown = [row for row in rows if row["marginal"] == "education,income"]
    table = _table("education", "income <=50K", "income >50K")
    for _, cells in itertools.groupby(shown, key=lambda row: row["education"]):
        low, high = cells
        table.add_row(low["education"], _count(low), _count(high))
    console.print(f"{len(rows)} answers in {seconds:.2f} s. Those for education x income, with 95 % intervals:")
    console.print(table)
    console.print("Noise is added to every count, also to 0: answers are unbiased, so small ones may be negative.\n")
    return rows


def _picture(con: duckdb.DuckDBPyConnection, console: "Console", rows: Rows, folder: Path) -> None:
    console.rule("4. A picture: age x sex, with its error bars", align="left")
    _add_exact(con, rows)
    shown = [row for row in rows if row["marginal"] == "age,sex"]
    console.print("[bold]█[/] noisy count   [bold]░[/] its 95 % interval   [bold]◆[/] exact count, NOT PRIVATE")
    scale = (WIDTH - 2) / max(row["ci_high"] for row in shown)
    for row in shown:
        colour = "magenta" if row["sex"] == "Female" else "cyan"
        bar = _bar(row, scale)
        console.print(f"{row['age']:<8} {row['sex']:<6} [{colour}]{bar}[/] {_count(row)}", highlight=False)
    inside = sum(row["ci_low"] <= row["exact"] <= row["ci_high"] for row in rows)
    console.print(
        f"\nFor comparison only, NOT PRIVATE, and shown because Adult is public: {inside} of the {len(rows)} exact "
        f"counts ({inside / len(rows):.1%}) lie inside their 95 % intervals."
    )
    path = folder / "adult.png"
    drawn = _draw(shown, path)
    console.print(f"The same as a picture: {path}\n" if drawn else "With matplotlib installed it is drawn as a PNG.\n")


def _ask_again(con: duckdb.DuckDBPyConnection, console: "Console", before: Rows) -> None:
    console.rule("5. Ask the same again: the same answer, at no cost", align="left")
    _show(console, ASK)
    start = time.perf_counter()
    rows = _rows(con, ASK)
    seconds = time.perf_counter() - start
    same = all(new["count"] == old["count"] for new, old in zip(rows, before, strict=True))
    drawn = _rows(con, "SELECT released_at, count(*) OVER () AS releases FROM dp_releases()")[-1]
    console.print(
        f"{'The same' if same else 'DIFFERENT'} {len(rows)} answers in {seconds:.2f} s, drawn at "
        f"{drawn['released_at']:%Y-%m-%d %H:%M:%S} UTC; charges so far: {drawn['releases']}.\n"
    )


def _ledger(con: duckdb.DuckDBPyConnection, console: "Console") -> None:
    console.rule("6. The ledger: every charge, and what is left", align="left")
    for statement in (LEDGER, BUDGET):
        _show(console, statement)
        rows = _rows(con, statement)
        table = _table(*(name.replace("_", " ") for name in rows[0]))
        for row in rows:
            table.add_row(*map(_text, row.values()))
        console.print(table)


def _rows(con: duckdb.DuckDBPyConnection, query: str) -> Rows:
    result = con.execute(query)
    names = [column[0] for column in result.description or []]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def _add_exact(con: duckdb.DuckDBPyConnection, rows: Rows) -> None:
    pairs = ", ".join(f"({', '.join(pair)})" for pair in itertools.combinations(ATTRIBUTES, 2))
    counted = _rows(con, EXACT.format(columns=", ".join(ATTRIBUTES), pairs=pairs))
    exact = {tuple(row[name] for name in ATTRIBUTES): row["exact"] for row in counted}
    for row in rows:
        row["exact"] = exact.get(tuple(row[name] for name in ATTRIBUTES), 0)


def _count(row: dict[str, Any]) -> str:
    return f"{row['count']:>7,.0f} ± {row['ci_high'] - row['count']:.0f}"


def _bar(row: dict[str, Any], scale: float) -> str:
    low, count, high, exact = (round(max(0.0, row[name]) * scale) for name in ("ci_low", "count", "ci_high", "exact"))
    bar = list(("█" * min(low, count) + "░" * (high - low)).ljust(WIDTH))
    bar[exact] = "◆"
    return "".join(bar)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:%Y-%m-%d %H:%M:%S}" if hasattr(value, "strftime") else str(value)


def _show(console: "Console", sql: str) -> None:
    from rich.syntax import Syntax

    console.print(Syntax("", "sql", theme="ansi_dark").highlight(sql.rstrip()), soft_wrap=True)


def _table(first: str, *numbers: str) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    table.add_column(first)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _draw(rows: Rows, path: Path) -> bool:
    """Draw age x sex as bars with error bars; False without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for offset, (sex, colour) in zip((-0.2, 0.2), (("Female", "#b5367a"), ("Male", "#2a788e")), strict=True):
        chosen = [row for row in rows if row["sex"] == sex]
        x = [i + offset for i in range(len(chosen))]
        counts = [row["count"] for row in chosen]
        half = [row["ci_high"] - row["count"] for row in chosen]
        axes.bar(x, counts, 0.4, yerr=half, color=colour, alpha=0.7, capsize=3, label=f"{sex}, private, 95 % interval")
        exact = [row["exact"] for row in chosen]
        axes.scatter(x, exact, marker="D", s=12, color="black", zorder=3, label="exact, NOT PRIVATE" if offset > 0 else "")
    axes.set_xticks(range(len(rows) // 2), [row["age"] for row in rows if row["sex"] == "Male"], rotation=45)
    axes.set(xlabel="age", ylabel="people", title="UCI Adult, age x sex: private counts and declared error bars")
    axes.legend()
    figure.savefig(path, dpi=120)
    return True
