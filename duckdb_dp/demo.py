"""The demo: private marginals of the UCI Adult data, from the declarations to the ledger."""

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

import duckdb_dp
from duckdb_dp.terminal import Rows, print_sql, print_table

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
LEDGER = "SELECT time, mechanism, epsilon, delta, neighbours FROM dp_ledger();"
BUDGET = "SELECT dataset, epsilon_total, epsilon_spent, epsilon_remaining FROM dp_budget();"

EXACT = """
WITH binned AS (SELECT * REPLACE (
    CASE WHEN age >= 85 THEN '[85, 90]' ELSE '[' || age // 5 * 5 || ', ' || age // 5 * 5 + 5 || ')' END AS age
) FROM adult)
SELECT {columns}, count(*) AS exact FROM binned GROUP BY GROUPING SETS ({pairs})
"""
ATTRIBUTES = ("age", "education", "marital_status", "race", "sex", "income")

WIDTH = 50
"""Columns of a terminal bar."""


def run(folder: Path, out: "Console") -> None:
    """Run the demo in a folder, which keeps the database, its ledger and the picture.

    In a folder of an earlier run the same request is the same release: it costs nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    con = duckdb.connect(folder / "adult.duckdb")
    try:
        duckdb_dp.load(con)
        _declare(con, out)
        _explain(con, out)
        rows = _ask(con, out)
        _picture(con, out, rows, folder / "adult.png")
        _ask_again(con, out, rows)
        _ledger(con, out)
    finally:
        con.close()
    out.print(f"The database, its ledger (adult.duckdb.dp) and the picture are in {folder}", soft_wrap=True)


def _declare(con: duckdb.DuckDBPyConnection, out: "Console") -> None:
    out.rule("1. Declare what is private, and which values it may take", align="left")
    statements = DECLARATIONS.format(data=str(DATA).replace("'", "''"))
    print_sql(out, statements)
    for statement in statements.split(";\n"):
        con.execute(statement)
    out.print()


def _explain(con: duckdb.DuckDBPyConnection, out: "Console") -> None:
    out.rule("2. Plan: what an answer will cost, and how good it will be", align="left")
    print_sql(out, EXPLAIN)
    rows = _rows(con, EXPLAIN)
    shown = [
        {
            "marginal": row["marginal"].replace(",", " x "),
            "cells": row["cells"],
            "stddev": row["stddev"],
            "95 % interval": f"± {row['half_width']:.1f}",
            "of the budget": f"{row['budget_share']:.1%}",
        }
        for row in rows
    ]
    print_table(out, shown, right=("95 % interval", "of the budget"))
    one = rows[0]
    out.print(
        f"Planning costs nothing and reads no data. Asking costs epsilon {one['epsilon']:.3g} at delta "
        f"{one['delta']:g} (rho {one['rho']:.4g}), and its error is {one['ratio_to_gaussian']:.2f} times that of "
        "independent noise on each marginal.\n"
    )


def _ask(con: duckdb.DuckDBPyConnection, out: "Console") -> Rows:
    out.rule("3. Ask: noisy counts with honest error bars", align="left")
    print_sql(out, ASK)
    before = _charges(con)
    start = time.perf_counter()
    rows = _rows(con, ASK)
    seconds = time.perf_counter() - start
    cost = "charged once" if _charges(con) > before else "charged by an earlier run, so free"
    shown = [row for row in rows if row["marginal"] == "education,income"]
    cells = zip(shown[::2], shown[1::2], strict=True)
    out.print(f"{len(rows)} answers in {seconds:.2f} s, {cost}. Those for education x income, with 95 % intervals:")
    table = [{"education": low["education"], "<=50K": _count(low), ">50K": _count(high)} for low, high in cells]
    print_table(out, table, right=("<=50K", ">50K"))
    out.print("Answers are unbiased: noise is added to 0 as to any other count, so small ones can be negative.\n")
    return rows


def _picture(con: duckdb.DuckDBPyConnection, out: "Console", rows: Rows, path: Path) -> None:
    out.rule("4. A picture: income above 50K by age, with its error bars", align="left")
    _add_exact(con, rows)
    shown = [row for row in rows if row["marginal"] == "age,income" and row["income"] == ">50K"]
    scale = (WIDTH - 1) / max(row["ci_high"] for row in shown)
    for row in shown:
        out.print(f"  {row['age']:<8} [cyan]{_bar(row, scale)}[/] {_count(row)}")
    out.print("  ▓░ 95 % interval around the noisy count   ◆ exact count, NOT PRIVATE\n")
    inside = sum(row["ci_low"] <= row["exact"] <= row["ci_high"] for row in rows)
    out.print(
        f"Of all {len(rows)} exact counts {inside} ({inside / len(rows):.1%}) lie inside their 95 % intervals. "
        "This sentence is NOT PRIVATE either: it is here because Adult is public."
    )
    drawn = _draw(shown, path)
    out.print(
        f"The picture as a file: {path}\n" if drawn else "With matplotlib it is drawn as a file.\n", soft_wrap=True
    )


def _ask_again(con: duckdb.DuckDBPyConnection, out: "Console", before: Rows) -> None:
    out.rule("5. Ask the same again: the same answers, at no cost", align="left")
    print_sql(out, ASK)
    charges = _charges(con)
    start = time.perf_counter()
    rows = _rows(con, ASK)
    seconds = time.perf_counter() - start
    same = "the same" if [row["count"] for row in rows] == [row["count"] for row in before] else "OTHER"
    out.print(f"{len(rows)} answers in {seconds:.2f} s: {same}. New charges: {_charges(con) - charges}.\n")


def _ledger(con: duckdb.DuckDBPyConnection, out: "Console") -> None:
    out.rule("6. The ledger: every charge, and what is left", align="left")
    for statement in (LEDGER, BUDGET):
        print_sql(out, statement)
        print_table(out, _rows(con, statement))


def _rows(con: duckdb.DuckDBPyConnection, query: str) -> Rows:
    result = con.execute(query)
    names = [column[0] for column in result.description or []]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def _charges(con: duckdb.DuckDBPyConnection) -> int:
    return len(_rows(con, "FROM dp_ledger()"))


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
    bar = list(("█" * low + "▓" * (count - low) + "░" * (high - count)).ljust(WIDTH))
    bar[min(exact, WIDTH - 1)] = "◆"
    return "".join(bar)


def _draw(rows: Rows, path: Path) -> bool:
    """Draw counts by age as bars with error bars; False without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    ages, counts = [row["age"] for row in rows], [row["count"] for row in rows]
    half = [row["ci_high"] - row["count"] for row in rows]
    axes.bar(ages, counts, yerr=half, color="#7fb8c9", capsize=4, label="private count, 95 % interval")
    axes.scatter(
        ages, [row["exact"] for row in rows], marker="D", s=14, color="black", zorder=3, label="exact, NOT PRIVATE"
    )
    axes.tick_params(axis="x", rotation=45)
    axes.set(xlabel="age", ylabel="people", title="UCI Adult: income above 50K by age")
    axes.legend()
    figure.savefig(path, dpi=120)
    return True
