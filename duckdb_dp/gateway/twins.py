"""Makes a synthetic twin of each dataset that has none, so that accounts may explore at no cost."""

from duckdb_dp.counting.encode import full_name, quote
from duckdb_dp.errors import quoted_name
from duckdb_dp.gateway.broker import Broker
from duckdb_dp.gateway.errors import Log

SUFFIX = "_synthetic"


def make(broker: Broker, epsilon: float, log: Log) -> list[str]:
    """The twins that were made, as full names; what each costs is in the log first.

    Tables of a dataset of several are left out: dp_synthesize_database makes theirs, and dp_grant names them.

    Raises:
        DPError: a dataset has not that much left, or its twin's name is in use.

    Privacy: spends ``epsilon`` of each dataset that has no twin, once: a table of that name is its twin the next time.
    """
    made = []
    named = {row["dataset"] for row in broker.ledger.accounts.grants() if row["synthetic"]}
    budgets = {(row["catalog"], row["schema"], row["dataset"]): row for row in broker.ledger.budget_rows()}
    for dataset in broker.ledger.datasets():
        if dataset.member is not None or dataset.name in named:
            continue
        full = (dataset.catalog, dataset.schema, dataset.name + SUFFIX)
        left = budgets[dataset.catalog, dataset.schema, dataset.name]["epsilon_remaining"]
        if not broker.columns(full):
            log.write("twin", dataset=dataset.name, epsilon=epsilon, epsilon_left=left)
            broker.command(
                f"CREATE TABLE {full_name(*full)} AS FROM dp_synthesize("
                f"{quoted_name(dataset.catalog, dataset.schema, dataset.name)}, epsilon := {epsilon!r})"
            )
        broker.synthetic(".".join(map(quote, full)))  # its rows are those that dp_synthesize returned
        broker.ledger.accounts.name_twin(dataset, full)
        made.append(".".join(full))
    return made
