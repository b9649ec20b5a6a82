"""CALL dp_grant: says what an account of the gateway may spend of a dataset."""

import json

from duckdb_dp.budget import Budget
from duckdb_dp.sql import provenance
from duckdb_dp.sql.arguments import Arguments, Place, find_dataset
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {
    "account": "VARCHAR", "dataset": "VARCHAR", "epsilon": "DOUBLE", "epsilon_left": "DOUBLE", "delta": "DOUBLE",
    "max_epsilon": "DOUBLE", "synthetic": "VARCHAR", "until": "VARCHAR",
}  # fmt: skip


def rows(session: Session, arguments: Arguments, place: Place, _seen: str) -> Rows:
    """The grant, as it holds now.

    Raises:
        DPError: no such account, dataset or synthetic table, or no budget.

    Privacy: states a bound; spends nothing.
    """
    ledger = session.ledger
    dataset = find_dataset(ledger, arguments["dataset"], *place)
    budget = Budget(**{name: arguments.get(name) for name in ("epsilon", "rho", "mu")})
    most = None if arguments.get("max_epsilon") is None else Budget(epsilon=arguments["max_epsilon"])
    twin: tuple[str, str, str] | tuple[()] | None = None
    if arguments.get("synthetic") == "":
        twin = ()
    elif arguments.get("synthetic") is not None:
        table = provenance.find(session, arguments["synthetic"], [place])
        table.checked(list(table.table.columns))  # the rows themselves are compared when they are copied
        twin = table.table.name
    account = ledger.accounts.grant(
        arguments["account"], dataset, budget, most=most, until=arguments.get("until"), synthetic=twin
    )
    found = ledger.accounts.grant_of(account, dataset)
    assert found is not None
    return [
        {
            "account": found.account,
            "dataset": dataset.member.dataset if dataset.member else dataset.name,
            "epsilon": dataset.epsilon_of(found.cost),
            "epsilon_left": dataset.epsilon_of(ledger.asked_by(found.account).remaining(dataset)),
            "delta": dataset.cost_delta,
            "max_epsilon": found.max_epsilon,
            "synthetic": None if found.synthetic is None else ".".join(json.loads(found.synthetic)),
            "until": found.until,
        }
    ]


FUNCTION = register(Function(name="dp_grant", rows=rows, columns=COLUMNS, curator=True))
