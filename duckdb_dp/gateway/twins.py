"""Makes a synthetic twin of each dataset that has none, so that accounts may explore at no cost."""

from collections.abc import Mapping
from typing import Any

from duckdb_dp.counting.encode import full_name, quote
from duckdb_dp.errors import DPError, quoted_name
from duckdb_dp.gateway.broker import Broker
from duckdb_dp.gateway.errors import Log

SUFFIX = "_synthetic"


Full = tuple[str, str, str]


def make(broker: Broker, epsilon: float, log: Log) -> dict[Full, Full]:
    """The full names of datasets -> those of the twins that were made of them, now or before; the log says which and what is left.

    A dataset has one where every grant on it names a synthetic table. Tables that are protected together are left out, which the log
    says: dp_synthesize_database makes theirs, and dp_grant names them.

    Raises:
        DPError: the name of a twin is that of another table.

    Privacy: spends ``epsilon`` of each dataset that has no twin, once: a table of that name is its twin the next time.
    """
    made: dict[Full, Full] = {}
    grants = [
        (bool(row["synthetic"]), (row["catalog"], row["schema"], row["dataset"]))
        for row in broker.ledger.accounts.grants()
    ]
    lacking = {whole for synthetic, whole in grants if not synthetic}
    named = {
        whole for synthetic, whole in grants if synthetic
    } - lacking  # all of their accounts have something to explore
    for dataset in broker.ledger.datasets():
        whole = (dataset.catalog, dataset.schema, dataset.name)
        full = (dataset.catalog, dataset.schema, dataset.name + SUFFIX)
        there = bool(broker.columns(full))
        if dataset.member is not None:
            if whole not in named:
                why = "protected with other tables: make them by dp_synthesize_database, and name them by dp_grant"
                log.write("no twin", dataset=dataset.name, why=why)
            continue
        if whole in named and not there:
            log.write("no twin", dataset=dataset.name, why="each grant on it names a synthetic table")
            continue
        if not there:
            try:
                broker.command(
                    f"CREATE TABLE {full_name(*full)} AS FROM dp_synthesize({quoted_name(*whole)}, epsilon := {epsilon!r})"
                )
            except DPError as error:  # it has no attributes, no delta, or not that much left: others may be served
                log.write("no twin", dataset=dataset.name, why=str(error))
                continue
            left = dataset.epsilon_of(broker.ledger.remaining(dataset))
            log.write("twin", dataset=dataset.name, epsilon=epsilon, epsilon_left=left)
        broker.synthetic(".".join(map(quote, full)))  # its rows are those that dp_synthesize returned
        broker.ledger.accounts.name_twin(dataset, full)
        made[whole] = full
    return made


def filled(grants: list[dict[str, Any]], made: Mapping[Full, Full]) -> list[dict[str, Any]]:
    """Rows of grants; of those that name no synthetic table, with the twin that was made of their dataset."""
    for row in grants:
        twin = made.get((row["catalog"], row["schema"], row["dataset"]))
        if row["synthetic"] is None and twin is not None:
            row |= {"synthetic": quoted_name(*twin)[1:-1].replace("''", "'"), "twin": twin[2]}
    return grants
