"""The SQL of links: counts of linked rows, and synthetic tables as lists, inside the user's own statement."""

from collections.abc import Mapping, Sequence

from duckdb_dp.counting.counts import words
from duckdb_dp.counting.encode import literal, quote, shuffled
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.counting.partners import NUMBER, ORIGINAL, partners_of
from duckdb_dp.counting.units import UNIT
from duckdb_dp.domain.domain import Clique, Domain, canonical
from duckdb_dp.request import units
from duckdb_dp.sql import synthetic_tables
from duckdb_dp.sql.links import DEGREE, LINKED, REPEATED, Link
from duckdb_dp.sql.synthetic_tables import coded, codes_of, worded
from duckdb_dp.synthesis.links.columns import counted_sides, unit_side

LISTED = "listed AS MATERIALIZED (SELECT list(block) AS names, list(cells) AS lists FROM blocks)"
"""CTE of all blocks in one row."""


def counting(link: Link, unit_key: str) -> str:
    """CTEs that end in ``listed`` (names, lists: of the blocks) and ``promise`` (kept: whether a promised bound holds).

    Blocks are the number of counted links, the joint cells of both parents and the link over them, and for each parent how
    many of its rows have a counted link. Blocks of rows have no attributes, so that marginals of attributes are those of
    links. Where one end is the unit, its links are listed unit by unit too, and those of a side that anybody may see row by row. The
    engine of another engine's tables counts their links.
    """
    if link.request.schema == SCHEMA:
        return synthetic_tables.UNCOUNTED
    ctes = [link.counted.cte] if link.counted else []
    ctes += [f"{SIDES[place]} AS MATERIALIZED ({_parent(link, place, unit_key)})" for place in link.parents]
    ctes.append(f"kept AS MATERIALIZED ({_kept(link, unit_key)})")
    ctes.append(f"joined AS MATERIALIZED ({_joined(link)})")
    domain = link.request.domain
    blocks = [_block(domain, (), "SELECT 0::BIGINT AS w0, count(*) AS n FROM joined")]
    blocks += [_block(domain, link.cells, _count_joined(link))] if link.cells else []
    blocks += [_block(domain, (tag,), _count_linked(link, place)) for place, tag in link.tagged(LINKED)]
    blocks += [_block(domain, (tag,), _count_degrees(link, place, tag)) for place, tag in link.tagged(DEGREE)]
    blocks += [_block(domain, (tag,), _count_repeated(link, place)) for place, tag in link.tagged(REPEATED)]
    if (place := unit_side(link.request)) is not None:
        blocks.append(_of_units(link, place))
    blocks += [_of_partners(link, end, place, unit_key) for end in counted_sides(link.request)]
    ctes.append(f"blocks AS ({' UNION ALL '.join(blocks)})")
    # In one aggregate: two would each see the blocks in an order of their own.
    ctes.append(LISTED)
    ctes.append(f"promise AS ({promise(link)})")
    return ", ".join(ctes)


SIDES = ("lefts", "rights")


def _parent(link: Link, place: int, unit_key: str, table: str | None = None) -> str:
    """One row per key: k0, ..., and what it adds to each word of the links' block (w0, ...).

    Of several rows with one key the one with the least keyed hash of its own values is taken. No other rows influence this
    choice. A synthetic table may be read in place of the parent.
    """
    side, domain = link.sides[place], link.request.domain
    codes = codes_of(side.renamed)
    held = [f"k{i}" for i in range(side.width)]
    numbers = [f"w{i}" for i in range(len(words(domain, link.cells)))]
    parts = [f"{sql} AS {n}" for n, sql in zip(numbers, worded(domain, link.cells, codes), strict=True)]
    rows = coded(table or link.parent(place), side.columns, link.keys(place, side.reference.key), strict=True)
    narrow = f"SELECT {', '.join([*held, *parts])} FROM ({rows})"
    fields = ", ".join(f"{name} := {name}" for name in numbers)
    first = f"min(struct_pack(h := {shuffled([literal(unit_key), *held, *numbers])}, {fields})) AS m"
    unpacked = ", ".join(f"m.{name} AS {name}" for name in numbers)
    return f"SELECT {', '.join(held)}, {unpacked} FROM (SELECT {', '.join(held)}, {first} FROM ({narrow}) GROUP BY ALL)"


def _kept(link: Link, unit_key: str) -> str:
    """The links that count: l0, ..., r0, ..., what each adds to the words of its block (w0, ...), and its units (u0, ...).

    Rows with a NULL key or an attribute outside its domain are left out. Where pairs are distinct, one row of equal pairs is
    taken. Of each unit at most as many links as its bound allows are taken; the same holds for rows that refer to one row of
    their own table. Each choice is by a keyed hash of the rows' own values.
    """
    request = link.request
    names = [end for place in link.parents for end in link.ends(place)]
    keys = [sql for place in link.parents for sql in link.keys(place, link.sides[place].reference.columns)]
    protected = units(request.unit)
    extra = [column for columns in protected for column in columns]
    marks = [f"u{i}" for i in range(len(extra))]
    rows = coded(link.rows, link.per_row, [*keys, *(link.unit(column) for column in extra)], strict=True)
    codes = codes_of([attribute for _, attribute in link.per_row])
    held = [f"k{i} AS {name}" for i, name in enumerate([*names, *marks])]
    numbers = [f"w{i}" for i in range(len(words(request.domain, link.cells)))]
    parts = [f"{sql} AS {n}" for n, sql in zip(numbers, worded(request.domain, link.cells, codes), strict=True)]
    found = f"SELECT {', '.join([*held, *parts])} FROM ({rows})"
    columns_held = [*names, *marks]
    if link.distinct:
        fields = ", ".join(f"{name} := {name}" for name in numbers)
        first = f"min(struct_pack(h := {shuffled([literal(unit_key), *columns_held, *numbers])}, {fields})) AS m"
        grouped = f"SELECT {', '.join(columns_held)}, {first} FROM ({found}) GROUP BY ALL"
        found = f"SELECT {', '.join([*columns_held, *(f'm.{name} AS {name}' for name in numbers)])} FROM ({grouped})"
    # Of a table that refers to itself a row is protected with the rows that refer to it: of these too so many stay.
    partition, most = (names, link.children) if link.children else (marks, request.max_rows)
    if link.children or len(protected) == 1:
        order = ", ".join([shuffled([literal(unit_key), *columns_held, *numbers]), *columns_held, *numbers])
        found = (
            f"SELECT * FROM ({found}) "
            f"QUALIFY row_number() OVER (PARTITION BY {', '.join(partition)} ORDER BY {order}) <= {most}"
        )
    return found


def _joined(link: Link) -> str:
    parents = [SIDES[place] for place in link.parents]
    count = len(words(link.request.domain, link.cells))
    added = [f"{' + '.join(f'{name}.w{i}' for name in [*parents, 'kept'])} AS w{i}" for i in range(count)]
    ends = [f"kept.{end}" for place in link.parents for end in link.ends(place)]
    joins = " ".join(
        f"JOIN {SIDES[place]} ON "
        + " AND ".join(f"{SIDES[place]}.k{i} = kept.{end}" for i, end in enumerate(link.ends(place)))
        for place in link.parents
    )
    return f"SELECT {', '.join([*ends, *added])} FROM kept {joins}"


def _count_joined(link: Link) -> str:
    numbers = [f"w{i}" for i in range(len(words(link.request.domain, link.cells)))]
    return f"SELECT {', '.join(numbers)}, count(*) AS n FROM joined GROUP BY ALL"


def _count_linked(link: Link, place: int) -> str:
    if link.sides[place].child:  # its rows are the links, and those that have no parent
        rows = f"(SELECT count(*) FROM ({coded(link.rows, link.per_row, [], strict=True)}))"
        linked = "(SELECT count(*) FROM joined)"
        return f"SELECT unnest([0::BIGINT, 1]) AS w0, unnest([{rows} - {linked}, {linked}]) AS n"
    on = " AND ".join(f"joined.{end} = s.k{i}" for i, end in enumerate(link.ends(place)))
    flags = f"SELECT EXISTS (FROM joined WHERE {on})::BIGINT AS w0 FROM {SIDES[place]} s"
    return f"SELECT w0, count(*) AS n FROM ({flags}) GROUP BY ALL"


def _count_degrees(link: Link, place: int, tag: str) -> str:
    held, ends = [f"k{i}" for i in range(link.sides[place].width)], link.ends(place)
    linked = f"SELECT {', '.join(ends)}, count(*) AS n FROM joined GROUP BY ALL"
    on = " AND ".join(f"d.{end} = s.{key}" for end, key in zip(ends, held, strict=True))
    most = link.request.domain.sizes[tag] - 1
    degrees = (
        f"SELECT least(coalesce(d.n, 0), {most})::BIGINT AS w0 FROM {SIDES[place]} s LEFT JOIN ({linked}) d ON {on}"
    )
    return f"SELECT w0, count(*) AS n FROM ({degrees}) GROUP BY ALL"


def _count_repeated(link: Link, place: int) -> str:
    """How many rows with a link have two of one pair, and how many have not."""
    other = ", ".join(link.ends(1 - place))
    flags = f"SELECT (count(*) > count(DISTINCT ({other})))::BIGINT AS w0 FROM joined GROUP BY {', '.join(link.ends(place))}"
    return f"SELECT w0, count(*) AS n FROM ({flags}) GROUP BY ALL"


def _of_units(link: Link, place: int) -> str:
    """One row (block, cells): the words of each link, those of a unit one after another, and how many links its unit has."""
    ends = ", ".join(link.ends(place))
    held = f"SELECT *, count(*) OVER (PARTITION BY {ends}) AS n FROM joined"
    entries = ", ".join(f"{{'k': w{i}, 'n': n}}" for i in range(len(words(link.request.domain, link.cells))))
    units_ = f"SELECT flatten(list([{entries}])) AS cells FROM ({held}) GROUP BY {ends}"
    return f"SELECT {literal(canonical([UNIT, *link.cells]))} AS block, flatten(list(cells)) AS cells FROM ({units_})"


def _of_partners(link: Link, end: int, unit: int | None, unit_key: str) -> str:
    """One row (block, cells) of a side's links row by row, as ``counting.partners`` reads them.

    The rows have the order of their keys, which the synthetic rows have too.
    """
    side, table = link.sides[end], SIDES[end]
    held, order = [f"k{i}" for i in range(side.width)], ", ".join(f"{key} ASC" for key in _as_read(link, end))
    ranked = f"SELECT {', '.join(held)}, row_number() OVER (ORDER BY {order}) - 1 AS p FROM {table}"
    theirs = ", ".join(link.ends(end))
    links, square = f"SELECT {theirs}, 1::BIGINT AS m FROM joined", "1::BIGINT"
    if unit is not None:
        ours = ", ".join(link.ends(unit))
        links = f"SELECT {ours}, {theirs}, count(*) AS m FROM joined GROUP BY ALL"
        square = f"(sum(m * m) OVER (PARTITION BY {ours}))::BIGINT"
    on = " AND ".join(f"c.{name} = r.{key}" for name, key in zip(link.ends(end), held, strict=True))
    numbers = f"SELECT p, m, {square} AS n FROM ({links}) c JOIN ({ranked}) r ON {on}"
    cells = f"SELECT p AS w0, n FROM (SELECT p, n, unnest(range(m)) FROM ({numbers}))"
    cells += f" UNION ALL SELECT count(*), {NUMBER} FROM {table}"
    cells += f" UNION ALL SELECT ({_same(link, end, unit_key)})::BIGINT, {ORIGINAL}"
    listed = f"SELECT list({{'k': w0::BIGINT, 'n': n::BIGINT}}) AS cells FROM ({cells})"
    return f"SELECT {literal(canonical(list(partners_of(end))))} AS block, cells FROM ({listed})"


def _as_read(link: Link, end: int) -> list[str]:
    """SQL of the keys of a side as those of the synthetic table are read: whole numbers, or texts by their bytes; NULL for others."""
    held, as_text = [f"k{i}" for i in range(link.sides[end].width)], link.as_text[end]
    if link.sides[end].key.texts:
        return held if as_text else [f"encode(TRY_CAST({key} AS VARCHAR))" for key in held]
    return [f"TRY_CAST({f'decode({key})' if as_text else key} AS BIGINT)" for key in held]


def _same(link: Link, end: int, unit_key: str) -> str:
    """Whether a synthetic table has the very rows of a side, keys and attributes; both are public."""
    side, held = link.sides[end], _as_read(link, end)
    numbers = [f"w{i}" for i in range(len(words(link.request.domain, link.cells)))]
    ours, theirs = (
        f"SELECT {', '.join([*held, *numbers])} FROM {rows}"
        for rows in (SIDES[end], f"({_parent(link, end, unit_key, side.sql)})")
    )
    apart = f"({ours} EXCEPT {theirs}) UNION ALL ({theirs} EXCEPT {ours})"
    return f"SELECT NOT EXISTS ({apart})"


def _block(domain: Domain, clique: Clique, groups: str) -> str:
    """One row (block, cells) from the words and the number of each non-empty cell."""
    entries = [f"{{'k': w{i}, 'n': n}}" for i in range(len(words(domain, clique)))]
    cells = f"list({entries[0]})" if len(entries) == 1 else f"flatten(list([{', '.join(entries)}]))"
    return f"SELECT {literal(canonical(list(clique)))} AS block, {cells} AS cells FROM ({groups})"


def promise(link: Link) -> str:
    """Whether no unit has more links than promised; true where links above the bound are left out instead.

    It covers all rows with keys, whatever is declared about their attributes and equal pairs. If declarations could change
    the answer, it would reveal how many links someone has.
    """
    request = link.request
    protected = units(request.unit)
    if len(protected) < 2:
        return "SELECT true AS kept"
    keys = [sql for place in link.parents for sql in link.keys(place, link.sides[place].reference.columns)]
    owners = [[link.unit(column) for column in columns] for columns in protected]
    held = list(dict.fromkeys([*keys, *(column for columns in owners for column in columns)]))
    names = {sql: f"p{i}" for i, sql in enumerate(held)}
    present = " AND ".join(f"{sql} IS NOT NULL" for sql in held)
    some = f"SELECT {', '.join(f'{sql} AS {name}' for sql, name in names.items())}"
    groups = [", ".join(names[column] for column in columns) for columns in owners]
    degrees = " UNION ALL ".join(
        f"SELECT max(n) AS most FROM (SELECT count(*) AS n FROM ({some} FROM {link.table} WHERE {present}) GROUP BY {group})"
        for group in groups
    )
    return f"SELECT coalesce(max(most), 0) <= {request.max_rows} AS kept FROM ({degrees})"


# CodedRows


def rows(
    link: Link,
    types: Mapping[str, str],
    own: Sequence[str],
    key: Sequence[str],
    fits: str,
    *,
    among: Sequence[str],
    private: bool,
) -> str:
    """SELECT of the links: the foreign keys as the synthetic tables have them, then the link's attributes.

    Args:
        link: the link.
        types: types of the link table's columns.
        own: SQL of each attribute of the link, from its drawn column c0, c1, ...
        key: SQL of columns that number the rows, from n.
        fits: the condition that they have room for n.
        among: the columns of the key; rows with the same parents of these are numbered from 1.
        private: False adds a column that says that the noise was seeded.
    """
    found = []
    first = sum(len(_indices(link, place)) for place in (0, 1))
    drawn = [f"unnest(_dp_cells(handle, {i + first})) AS c{i}" for i in range(len(own))]
    for place in (0, 1):
        ends = _ends(link, place, types)
        drawn += [f"unnest({sql}) AS {end}" for end, (_, _, sql) in zip(link.ends(place), ends, strict=True)]
        found += [
            f"CAST({end} AS {type_}) AS {name}" for end, (name, type_, _) in zip(link.ends(place), ends, strict=True)
        ]
    number = "n"
    if key:
        drawn.append("unnest(range(1, 1 + len(_dp_cells(handle, 0)))) AS n")
        at = {
            column: end
            for place in (0, 1)
            for column, end in zip(link.sides[place].reference.columns, link.ends(place), strict=True)
        }
        siblings = ", ".join(at[column] for column in among if column in at)
        number = f"row_number() OVER (PARTITION BY {siblings} ORDER BY n)" if siblings else number
    marked = [] if private else ["false AS private"]
    chosen = ", ".join([*key, *found, *own, *marked])
    select = f"SELECT {', '.join(drawn)} FROM {_from(link)}"
    if number != "n":
        select = f"SELECT * REPLACE ({number} AS n) FROM ({select})"
    return f"SELECT {chosen} FROM ({select}){fits}"


ROW = "_dp_row"
"""A column that no table of the user's has."""


def child_rows(link: Link, types: Mapping[str, str], columns: Sequence[str], *, private: bool) -> str:
    """SELECT of columns of the synthetic child table with its foreign key added, NULL where a row has no parent."""
    child = link.sides[0]
    ends = _ends(link, 1, types)
    drawn = ", ".join(f"{sql} AS {end}" for end, (_, _, sql) in zip(link.ends(1), ends, strict=True))
    found = [
        f"CAST(drawn.{end}[r.{ROW}] AS {type_}) AS {name}"
        for end, (name, type_, _) in zip(link.ends(1), ends, strict=True)
    ]
    keys = child.key.values or [quote(attribute.name) for attribute in child.attributes]
    order = ", ".join(f"{key} ASC" for key in keys)  # the order of the stored positions, whatever default_order is
    held = [quote(column) for column in columns]
    numbered = f"SELECT {', '.join(held)}, row_number() OVER (ORDER BY {order}) AS {ROW} FROM {child.sql}"
    marked = [] if private else ["false AS private"]
    chosen = ", ".join([*(f"r.{column}" for column in held), *found, *marked])
    lists = f"drawn AS MATERIALIZED (SELECT {drawn} FROM {_from(link)})"
    # Keys of text are a name and a number: 'orders-9' comes before 'orders-10', as the rows were numbered.
    places = [place for key in map(quote, child.key.columns) for place in (f"length({key}::VARCHAR)", key)]
    shown = f" ORDER BY {', '.join(places)}" if child.key.texts else ""
    return f"SELECT * FROM (WITH {lists} SELECT {chosen} FROM ({numbered}) r, drawn){shown}"


def _from(link: Link) -> str:
    return "handle, sides" if link.texts else "handle"


def _indices(link: Link, place: int) -> range:
    """Which stored columns are the keys at one end: a column each for whole numbers, one of positions for text."""
    counts = [1 if side.key.texts else len(side.key.columns) for side in link.sides]
    return range(counts[0]) if place == 0 else range(counts[0], sum(counts))


def _ends(link: Link, place: int, types: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(name, type, SQL of the list) of each column of a foreign key."""
    side, stored = link.sides[place], _indices(link, place)
    found = []
    for name, target in zip(side.reference.columns, side.reference.key, strict=True):
        column = side.key.columns.index(target)
        if side.key.texts:
            type_, sql = "VARCHAR", f"_dp_text_keys(handle, {stored[0]}, {place}, {column}, found)"
        else:
            type_, sql = "BIGINT", f"_dp_keys(handle, {stored[column]})"
        found.append((quote(name), types.get(name, type_), sql))
    return found
