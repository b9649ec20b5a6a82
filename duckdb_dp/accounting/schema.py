"""The ledger's tables, as numbered migrations; `PRAGMA user_version` is the number of migrations that were applied.

Append a migration, never edit one. Plain SQL that SQLite 3.34 understands.
"""

from __future__ import annotations

APPLICATION_ID = 0x64647064  # 'ddpd': tells a ledger from any other SQLite file


def _insert_only(table: str, same: str) -> tuple[str, ...]:
    """Triggers that forbid UPDATE, DELETE and INSERT OR REPLACE, which deletes without firing a DELETE trigger."""
    refusal = f"SELECT RAISE(ABORT, '{table} is insert-only: what was declared, charged or stored stays');"
    return (
        f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} BEGIN {refusal} END",
        f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} BEGIN {refusal} END",
        f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} "
        f"WHEN EXISTS (SELECT 1 FROM {table} AS old WHERE {same}) BEGIN {refusal} END",
    )


_FIRST = (
    "CREATE TABLE secret (key BLOB NOT NULL CHECK (length(key) = 16))",
    *_insert_only("secret", "true"),
    # Names compare as in DuckDB: without regard to ASCII case. Else 'Adult' would have a second budget.
    """CREATE TABLE datasets (
        id INTEGER PRIMARY KEY,
        time TEXT NOT NULL,
        catalog TEXT NOT NULL COLLATE NOCASE,
        schema TEXT NOT NULL COLLATE NOCASE,
        name TEXT NOT NULL COLLATE NOCASE,
        unit TEXT,
        max_rows INTEGER NOT NULL CHECK (max_rows >= 1),
        neighbours TEXT NOT NULL,
        accounting TEXT NOT NULL,
        budget REAL NOT NULL CHECK (budget > 0),
        epsilon REAL,
        delta REAL,
        rho REAL,
        mu REAL,
        version TEXT NOT NULL,
        UNIQUE (catalog, schema, name))""",
    *_insert_only(
        "datasets",
        "old.id = NEW.id OR (old.catalog = NEW.catalog AND old.schema = NEW.schema AND old.name = NEW.name)",
    ),
    """CREATE TABLE attributes (
        id INTEGER PRIMARY KEY,
        dataset INTEGER NOT NULL REFERENCES datasets (id),
        time TEXT NOT NULL,
        name TEXT NOT NULL COLLATE NOCASE,
        position INTEGER NOT NULL,
        spec TEXT NOT NULL)""",
    "CREATE INDEX attributes_by_name ON attributes (dataset, name)",
    *_insert_only("attributes", "old.id = NEW.id"),
    """CREATE TABLE charges (
        id INTEGER PRIMARY KEY,
        time TEXT NOT NULL,
        dataset INTEGER NOT NULL REFERENCES datasets (id),
        function TEXT NOT NULL,
        request TEXT NOT NULL,
        request_hash TEXT NOT NULL,
        mechanism TEXT NOT NULL,
        event TEXT NOT NULL,
        cost REAL NOT NULL CHECK (cost > 0),
        mu REAL,
        rho REAL,
        epsilon REAL,
        delta REAL,
        unit TEXT,
        neighbours TEXT NOT NULL,
        fresh_key TEXT,
        private INTEGER NOT NULL CHECK (private IN (0, 1)),
        version TEXT NOT NULL)""",
    "CREATE INDEX charges_by_dataset ON charges (dataset, cost)",
    "CREATE INDEX charges_by_request ON charges (request_hash, private, fresh_key)",
    *_insert_only(
        "charges",
        "old.id = NEW.id OR (old.request_hash = NEW.request_hash AND old.private = NEW.private"
        " AND old.fresh_key IS NEW.fresh_key)",
    ),
    """CREATE TABLE stored (
        release INTEGER PRIMARY KEY REFERENCES charges (id),
        time TEXT NOT NULL,
        file TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        bytes INTEGER NOT NULL)""",
    *_insert_only("stored", "old.release = NEW.release"),
    """CREATE TABLE names (
        id INTEGER PRIMARY KEY,
        time TEXT NOT NULL,
        dataset INTEGER NOT NULL REFERENCES datasets (id),
        name TEXT NOT NULL,
        request_hash TEXT NOT NULL,
        private INTEGER NOT NULL CHECK (private IN (0, 1)))""",
    "CREATE INDEX names_by_name ON names (name)",
    "CREATE INDEX names_by_request ON names (request_hash, private)",
    *_insert_only("names", "old.id = NEW.id"),
)

_SECOND = (
    """CREATE TABLE links (
        id INTEGER PRIMARY KEY,
        dataset INTEGER NOT NULL REFERENCES datasets (id),
        time TEXT NOT NULL,
        spec TEXT NOT NULL)""",
    "CREATE INDEX links_by_dataset ON links (dataset)",
    *_insert_only("links", "old.id = NEW.id"),
)

_THIRD = (
    # Tables whose rows are public: everywhere, or (links) where the links of one dataset refer to them.
    """CREATE TABLE public (
        id INTEGER PRIMARY KEY,
        time TEXT NOT NULL,
        catalog TEXT NOT NULL COLLATE NOCASE,
        schema TEXT NOT NULL COLLATE NOCASE,
        name TEXT NOT NULL COLLATE NOCASE,
        links INTEGER REFERENCES datasets (id))""",
    *_insert_only("public", "old.id = NEW.id"),
    # Synthetic rows that were handed out: which columns, and a digest of their values.
    """CREATE TABLE synthetic (
        id INTEGER PRIMARY KEY,
        time TEXT NOT NULL,
        release INTEGER REFERENCES charges (id),
        columns TEXT NOT NULL,
        digest TEXT NOT NULL,
        private INTEGER NOT NULL CHECK (private IN (0, 1)))""",
    "CREATE INDEX synthetic_by_columns ON synthetic (columns)",
    *_insert_only("synthetic", "old.id = NEW.id"),
)

_FOURTH = (
    # A name is one release's: fresh := true draws its request anew, and leaves the name where it is. Rows from before have
    # none, and mean the newest release that their request had then: see `NAMED`.
    "ALTER TABLE names ADD COLUMN release INTEGER REFERENCES charges (id)",
)

_FIFTH = (
    # The sum of the deltas of thresholds, beside that of the costs: what a dataset reserves, and what each charge takes.
    "ALTER TABLE datasets ADD COLUMN discovery_delta REAL CHECK (discovery_delta > 0)",
    "ALTER TABLE charges ADD COLUMN discovery_delta REAL NOT NULL DEFAULT 0 CHECK (discovery_delta >= 0)",
)

_SIXTH = (
    # Whether the bound on what one unit adds is chosen privately by each request. Then max_rows is 1, which is safe for all.
    "ALTER TABLE datasets ADD COLUMN auto_rows INTEGER NOT NULL DEFAULT 0 CHECK (auto_rows IN (0, 1))",
)

_SEVENTH = (
    # The tables of a dataset of several, and its named relations (view, a SELECT). `unit` are the columns of its rows that name
    # the unit, `reference` the foreign key that leads there; max_rows is NULL where a bound is chosen privately.
    """CREATE TABLE members (
        id INTEGER PRIMARY KEY,
        dataset INTEGER NOT NULL REFERENCES datasets (id),
        time TEXT NOT NULL,
        catalog TEXT NOT NULL COLLATE NOCASE,
        schema TEXT NOT NULL COLLATE NOCASE,
        name TEXT NOT NULL COLLATE NOCASE,
        unit TEXT,
        max_rows INTEGER CHECK (max_rows >= 1),
        reference TEXT,
        view TEXT,
        UNIQUE (catalog, schema, name))""",
    "CREATE INDEX members_by_dataset ON members (dataset)",
    *_insert_only(
        "members",
        "old.id = NEW.id OR (old.catalog = NEW.catalog AND old.schema = NEW.schema AND old.name = NEW.name)",
    ),
    "ALTER TABLE attributes ADD COLUMN member INTEGER REFERENCES members (id)",
    # What tables refer to, declared by name: before they are protected, or as members.
    """CREATE TABLE named_links (
        id INTEGER PRIMARY KEY,
        time TEXT NOT NULL,
        catalog TEXT NOT NULL COLLATE NOCASE,
        schema TEXT NOT NULL COLLATE NOCASE,
        name TEXT NOT NULL COLLATE NOCASE,
        spec TEXT NOT NULL)""",
    *_insert_only("named_links", "old.id = NEW.id"),
)

_EIGHTH = (
    # Who may ask over the network. Of an account, and of its grant on a dataset, the newest row counts. A token is random, and
    # only its hash is kept.
    """CREATE TABLE accounts (
        id INTEGER PRIMARY KEY,
        time TEXT NOT NULL,
        name TEXT NOT NULL COLLATE NOCASE,
        role TEXT NOT NULL CHECK (role IN ('steward', 'analyst', 'viewer', 'closed')),
        token_hash TEXT NOT NULL UNIQUE)""",
    "CREATE INDEX accounts_by_name ON accounts (name)",
    *_insert_only("accounts", "old.id = NEW.id OR old.token_hash = NEW.token_hash"),
    # Costs are in the unit of the dataset's accounting; epsilon and max_epsilon are as they were typed.
    """CREATE TABLE grants (
        id INTEGER PRIMARY KEY,
        time TEXT NOT NULL,
        account TEXT NOT NULL COLLATE NOCASE,
        dataset INTEGER NOT NULL REFERENCES datasets (id),
        cost REAL NOT NULL CHECK (cost >= 0),
        max_cost REAL CHECK (max_cost >= 0),
        epsilon REAL,
        max_epsilon REAL,
        until TEXT,
        synthetic TEXT)""",
    "CREATE INDEX grants_by_account ON grants (account, dataset)",
    *_insert_only("grants", "old.id = NEW.id"),
    """CREATE TABLE account_charges (
        id INTEGER PRIMARY KEY,
        time TEXT NOT NULL,
        account TEXT NOT NULL COLLATE NOCASE,
        dataset INTEGER NOT NULL REFERENCES datasets (id),
        release INTEGER NOT NULL REFERENCES charges (id),
        cost REAL NOT NULL CHECK (cost > 0),
        UNIQUE (account, release))""",
    "CREATE INDEX account_charges_by_dataset ON account_charges (account, dataset, cost)",
    *_insert_only("account_charges", "old.id = NEW.id OR (old.account = NEW.account AND old.release = NEW.release)"),
    # What waits for a steward, and what stewards decided: of a request the first decision counts.
    """CREATE TABLE requests (
        id INTEGER PRIMARY KEY,
        time TEXT NOT NULL,
        account TEXT NOT NULL COLLATE NOCASE,
        dataset INTEGER NOT NULL REFERENCES datasets (id),
        function TEXT NOT NULL,
        request TEXT NOT NULL,
        request_hash TEXT NOT NULL,
        mechanism TEXT NOT NULL,
        cost REAL NOT NULL,
        epsilon REAL)""",
    "CREATE INDEX requests_by_hash ON requests (account, request_hash)",
    *_insert_only("requests", "old.id = NEW.id"),
    """CREATE TABLE decisions (
        request INTEGER PRIMARY KEY REFERENCES requests (id),
        time TEXT NOT NULL,
        approved INTEGER NOT NULL CHECK (approved IN (0, 1)),
        reason TEXT,
        steward TEXT)""",
    *_insert_only("decisions", "old.request = NEW.request"),
    """CREATE TABLE shares (
        id INTEGER PRIMARY KEY,
        time TEXT NOT NULL,
        release INTEGER NOT NULL REFERENCES charges (id),
        account TEXT NOT NULL COLLATE NOCASE)""",
    *_insert_only("shares", "old.id = NEW.id"),
    """CREATE TABLE audit (
        id INTEGER PRIMARY KEY,
        time TEXT NOT NULL,
        account TEXT NOT NULL,
        client TEXT NOT NULL,
        statement TEXT NOT NULL,
        outcome TEXT NOT NULL,
        detail TEXT,
        request INTEGER,
        seconds REAL)""",
    *_insert_only("audit", "old.id = NEW.id"),
)

_NINTH = (
    # Tables with a budget for each closed period: how a table is cut (no period), and each period, a dataset of its own.
    """CREATE TABLE periods (
        id INTEGER PRIMARY KEY,
        time TEXT NOT NULL,
        dataset INTEGER NOT NULL REFERENCES datasets (id),
        period INTEGER REFERENCES datasets (id),
        spec TEXT NOT NULL)""",
    "CREATE INDEX periods_by_dataset ON periods (dataset)",
    "CREATE INDEX periods_by_period ON periods (period)",
    *_insert_only("periods", "old.id = NEW.id OR (old.dataset = NEW.dataset AND old.period IS NEW.period)"),
)

_TENTH = (
    # What was chosen privately while a statement ran, before the rest of its release was drawn: stored with the charge.
    """CREATE TABLE choices (
        release INTEGER PRIMARY KEY REFERENCES charges (id),
        time TEXT NOT NULL,
        chosen TEXT NOT NULL)""",
    *_insert_only("choices", "old.release = NEW.release"),
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    *(_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH, _SIXTH, _SEVENTH, _EIGHTH, _NINTH),
    _TENTH,
)

NAMED = (
    "coalesce(n.release, (SELECT max(o.id) FROM charges o WHERE o.request_hash = n.request_hash AND o.private = n.private"
    " AND o.time <= n.time))"
)
"""The charge that a row `n` of `names` is about: older rows name the one that was their request's newest then."""
