"""Datasets of several tables in the ledger: one budget, declarations that stay, and ledgers of before."""

from pathlib import Path

import pytest

from duckdb_dp.accounting.event import GaussianEvent
from duckdb_dp.accounting.families import NewMember
from duckdb_dp.accounting.ledger import Ledger
from duckdb_dp.budget import Budget
from duckdb_dp.errors import DPError

CUSTOMER = NewMember(name=("db", "main", "customer"), unit="id", max_rows=1)
ORDERS = NewMember(name=("db", "main", "orders"), unit="customer_id", max_rows=None, reference="{}")
WHOLE = {"unit": "id", "neighbours": "one customer with all its orders", "budget": Budget(rho=1)}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger with a dataset of two tables."""
    made = Ledger(tmp_path / "a.dp")
    made.families.protect([CUSTOMER, ORDERS], **WHOLE)
    return made


def test_members_share_one_budget(ledger: Ledger) -> None:
    """What is charged to one table is gone for the other."""
    customer, orders = ledger.datasets()
    assert customer.id == orders.id
    assert (customer.auto_rows, orders.auto_rows) == (False, True)
    charge = {"function": "f", "mechanism": "m", "event": GaussianEvent(mu=1.2)}
    ledger.charge(dataset=orders, request="1", **charge)
    assert ledger.spent(customer) == ledger.spent(orders) == pytest.approx(0.72)
    with pytest.raises(DPError, match=r"of the budget of 'customer', rho 0\.28 of rho 1"):
        ledger.charge(dataset=customer, request="2", **charge)
    (row,) = ledger.budget_rows()
    assert (row["dataset"], row["neighbours"], row["releases"]) == ("customer", "one customer with all its orders", 1)
    (charged,) = ledger.ledger_rows()
    assert (charged["unit"], charged["neighbours"]) == ("id", "one customer with all its orders")


def test_declarations_stay(ledger: Ledger) -> None:
    """The same again is the same dataset; another bound, table, order or budget is refused, and so is a table alone."""
    assert ledger.families.protect([CUSTOMER, ORDERS], **WHOLE) == ledger.datasets()[0]
    for members, whole in (
        ([CUSTOMER], WHOLE),
        ([ORDERS, CUSTOMER], WHOLE),
        ([CUSTOMER, NewMember(name=ORDERS.name, unit="customer_id", max_rows=3, reference="{}")], WHOLE),
        ([CUSTOMER, ORDERS], WHOLE | {"budget": Budget(rho=2)}),
        ([NewMember(name=("db", "main", "new"), unit="id", max_rows=1), ORDERS], WHOLE),
    ):
        with pytest.raises(DPError, match="is declared already, and a declaration stays"):
            ledger.families.protect(members, **whole)
    with pytest.raises(DPError, match="is declared already"):
        ledger.protect(catalog="DB", schema="main", name="Orders", budget=Budget(rho=1), unit="customer_id", max_rows=1)
    with pytest.raises(DPError, match="protected"):
        ledger.public.declare([ORDERS.name])
    ledger.public.declare([("db", "main", "nation")])
    with pytest.raises(DPError, match="'nation' was declared public"):
        ledger.families.protect([NewMember(name=("db", "main", "nation"), unit="id", max_rows=1)], **WHOLE)
    assert len(ledger.datasets()) == 2


def test_attributes_are_a_tables_own(ledger: Ledger) -> None:
    """Columns of one name in two tables are declared apart."""
    customer, orders = ledger.datasets()
    ledger.declare(customer, "status", "1")
    ledger.declare(orders, "status", "2")
    assert ledger.attributes(customer) == [("status", "1")]
    assert ledger.attributes(orders) == [("status", "2")]


def test_named_relations(ledger: Ledger) -> None:
    """A view spends the dataset's budget, keeps its text, and is no table that could be missing."""
    customer, _ = ledger.datasets()
    view = NewMember(name=("db", "main", "sales"), unit="id", max_rows=5, view="SELECT 1")
    made = ledger.families.add_view(customer, view)
    assert made.id == customer.id
    assert ledger.families.add_view(customer, view) == made == ledger.dataset("db", "main", "SALES")
    with pytest.raises(DPError, match="choose another name"):
        ledger.families.add_view(customer, NewMember(name=view.name, unit="id", max_rows=5, view="SELECT 2"))
    with pytest.raises(DPError, match="choose another name"):
        ledger.families.add_view(customer, NewMember(name=ORDERS.name, unit="id", max_rows=5, view="SELECT 2"))
    assert [one.name for one in ledger.datasets()] == ["customer", "orders"]
    assert [one.name for one in ledger.families.relations()] == ["customer", "orders", "sales"]


def test_references_by_name(ledger: Ledger) -> None:
    """Until a table is protected its references may be declared anew; then they stay."""
    name = ("db", "main", "visits")
    for spec in ("1", "2", "2"):
        ledger.families.refer(name, spec)
    assert ledger.families.references(name) == "2"
    visits = ledger.protect(catalog="db", schema="main", name="visits", budget=Budget(rho=1))
    assert ledger.link(visits) == "2"
    with pytest.raises(DPError, match="a declaration stays"):
        ledger.declare_link(visits, "3")
    _, orders = ledger.datasets()[:2]
    ledger.declare_link(orders, "1")
    assert ledger.link(orders) == "1"
