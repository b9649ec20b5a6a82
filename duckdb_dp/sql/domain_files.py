"""Files that say which values columns may take: read as shapes of ``bulk``, and written from declarations.

TOML and JSON of this package's own, metadata of SDV, table schemas and data packages of Frictionless, and a data dictionary in CSV.

Privacy: a declaration is public, so a file that holds one is too. But no message shows a value or a name that a file holds: it may be the
private table itself, named by mistake.
"""

import csv
import io
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.errors import STATEMENT, DPError, as_sql, brief, few, quoted, quoted_name
from duckdb_dp.sql import bulk
from duckdb_dp.sql.bulk import AUTO
from duckdb_dp.sql.catalog import Catalog

HEADER = ("column", "value")
"""Columns that a data dictionary has; ``label``, and others, are for people."""

WORKS = "a file is .toml, .json or .csv, e.g. 'domain.toml'"

LARGEST = 2**26
"""Bytes of a file that is read."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a file says.

    Attributes:
        shapes: column -> shape of ``bulk``.
        kinds: column -> what dp_attribute still needs to be told; '' for an identifier, which needs no domain.
    """

    shapes: Mapping[str, Any] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)


def read(path: str, table: str, columns: Catalog) -> Described:
    """What a file says of a table's columns.

    Args:
        path: of the file.
        table: the table's name, where a file describes several.
        columns: of the table.

    Raises:
        DPError: there is no such file, or it is none of those that are read.
    """
    if "\0" in path:
        raise DPError(f"{_name(path)} is no file's name: {WORKS}.")
    readers = {".toml": _toml, ".json": _json, ".csv": _dictionary}
    reader = readers.get(Path(path).suffix.lower())
    if reader is None:
        raise DPError(f"{_name(path)} is no file that says which values columns may take: {WORKS}.")
    try:
        if Path(path).stat().st_size > LARGEST:
            raise DPError(f"{_name(path)} is too large for a declaration; at most {LARGEST >> 20} MB are read.")
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DPError(f"{_name(path)} is no text in UTF-8; save it so.") from None
    except OSError as error:
        raise DPError(f"{_name(path)} cannot be read: {error.strerror}.") from None
    found = reader(_name(path), text, table, columns)
    names = {column["column"].lower() for column in columns}
    if not found.shapes and not found.kinds:
        raise DPError(f"{_name(path)} says of no column which values it may take.")
    if found.shapes and not any(name.lower() in names for name in found.shapes):
        raise DPError(
            f"{_name(path)} describes no column of '{table}'; its columns are: {few(c['column'] for c in columns)}."
        )
    return found


def declared(
    path: str, table: str, columns: Catalog, shapes: Mapping[str, Any], keys: bulk.Keys
) -> dict[str, Attribute]:
    """The attributes that a file's shapes describe; ``keys`` as for ``bulk.declared``.

    Raises:
        DPError: one of them cannot be declared so; of the file its place and its column are named alone: what it holds may be a row.
    """
    known = {column["column"].lower(): column for column in columns}
    found: dict[str, Attribute] = {}
    for place, (name, shape) in enumerate(shapes.items(), 1):
        if (column := known.get(name.lower())) is None:
            raise DPError(
                f"entry {place} of {_name(path)} names no column of '{table}'; its columns are: {few(c['column'] for c in columns)}."
            )
        try:
            one = bulk.declared(table, columns, {name: shape}, keys)
        except DPError:
            own = as_sql(column["column"])
            raise DPError(
                f"entry {place} of {_name(path)}, of {own}, gives no domain of type {column['type']}; written in the statement it is "
                f"told what is wrong: CALL dp_attributes({quoted_name(table)}, {{{own}: [...]}})"
            ) from None
        if one.keys() & found.keys():
            raise DPError(
                f"entry {place} of {_name(path)} names {as_sql(column['column'])} a second time; name it once."
            )
        found |= one
    return found


def _toml(file: str, text: str, table: str, columns: Catalog) -> Described:
    try:
        return Described(shapes=_plain(tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\((at .*)\)", str(error))  # without the words, which may show what is there
        raise DPError(f"{file} is no TOML: look {place[1] if place else 'at its end'}.") from None


def _plain(value: Any) -> Any:
    """Dates and times as texts, as JSON has them."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float) else str(value)


def _json(file: str, text: str, table: str, columns: Catalog) -> Described:
    try:
        found = json.loads(text, object_pairs_hook=lambda pairs: _once(file, pairs))
    except json.JSONDecodeError as error:
        raise DPError(f"{file} is no JSON: look at line {error.lineno}, column {error.colno}.") from None
    except RecursionError:
        raise DPError(f"{file} is nested too deeply for a declaration.") from None
    if not isinstance(found, dict):
        raise DPError(f'{file} is no declaration: it holds no object, such as {{"age": [0, 18, 65]}}.')
    if _objects(found.get("tables")):
        found = _of_table(file, table, found["tables"])
    elif isinstance(found.get("resources"), list) and all(isinstance(each, dict) for each in found["resources"]):
        found = _of_table(file, table, {str(each.get("name")): each for each in found["resources"]})
    if isinstance(found.get("schema"), dict):
        found = found["schema"]
    fields = found.get("fields")
    if isinstance(fields, list) and fields and all(isinstance(each, dict) for each in fields):
        return _frictionless(fields)
    if _objects(fields) and all(
        "type" in each for each in fields.values()
    ):  # of SDV before 1.0, with other words for the same
        found = {"columns": {name: {"sdtype": each["type"]} for name, each in fields.items()}}
    if _objects(found.get("columns")) and all("sdtype" in each for each in found["columns"].values()):
        return _sdv(found, columns)
    return Described(shapes=found)


def _once(file: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DPError(f"{file} has a name twice in one object; name it once.")
    return found


def _objects(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(each, dict) for each in value.values())


def _of_table(file: str, table: str, found: Mapping[str, Any]) -> Any:
    """What a file says of one of its tables, or of its only one."""
    chosen = [each for name, each in found.items() if name.lower() == table.lower()] or (
        [*found.values()] if len(found) == 1 else []
    )
    if not chosen:
        raise DPError(f"{file} describes {len(found)} tables, and none is called '{table}'; name one of them so.")
    return chosen[0]


def _frictionless(fields: list[dict[str, Any]]) -> Described:
    """Table Schema: enum, categories, minimum and maximum. A value may be missing where it is not required."""
    shapes: dict[str, Any] = {}
    for each in fields:
        limits = each.get("constraints") if isinstance(each.get("constraints"), dict) else {}
        assert isinstance(limits, dict)
        nulls = False if limits.get("required") is True else AUTO
        values = limits.get("enum") or each.get("categories")
        if isinstance(values, list):
            shape: dict[str, Any] = {"values": [one.get("value") if isinstance(one, dict) else one for one in values]}
        elif limits.get("minimum") is not None and limits.get("maximum") is not None:
            shape = {"low": limits["minimum"], "high": limits["maximum"], "step": AUTO}
        elif each.get("type") == "boolean":
            shape = {}
        else:
            continue
        shapes[str(each.get("name"))] = {**shape, "nulls": nulls}
    return Described(shapes=shapes)


def _sdv(found: Mapping[str, Any], columns: Catalog) -> Described:
    """Metadata of SDV: which columns are identifiers, categories or truth values; bounds only where a constraint has them."""
    type_of = {column["column"].lower(): column["type"] for column in columns}
    shapes: dict[str, Any] = {}
    kinds: dict[str, str] = {}
    for name, each in found["columns"].items():
        dtype = types.find(type_of.get(name.lower(), ""))
        if each["sdtype"] in ("boolean", "categorical") and dtype is not None and dtype.members is not None:
            shapes[name] = {"nulls": AUTO}
        elif each["sdtype"] in ("boolean", "categorical"):
            kinds[name] = types.LABELS
        elif each["sdtype"] not in ("numerical", "datetime"):
            kinds[name] = ""  # 'id', 'email' and other words for what identifies
    constraints = found.get("constraints")
    for each in constraints if isinstance(constraints, list) else []:
        limits = each.get("constraint_parameters") if isinstance(each, dict) else None
        if isinstance(limits, dict) and each.get("constraint_class") == "ScalarRange":
            bounds = {"low": limits.get("low_value"), "high": limits.get("high_value")}
            shapes[str(limits.get("column_name"))] = {**bounds, "step": AUTO, "nulls": AUTO}
    return Described(shapes=shapes, kinds=kinds)


def _dictionary(file: str, text: str, table: str, columns: Catalog) -> Described:
    """CSV of column, value and label: one row for each value. An empty value is NULL."""
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    lines = csv.reader(io.StringIO(text), delimiter=delimiter)
    try:
        header = [name.strip().lower() for name in next(lines, [])]
        if not set(HEADER) <= set(header):
            raise DPError(f"{file} is no data dictionary: its first line names no columns {' and '.join(HEADER)}.")
        at_column, at_value = map(header.index, HEADER)
        rows = [(row[at_column].strip(), row[at_value].strip()) for row in lines if len(row) > max(at_column, at_value)]
    except csv.Error:
        raise DPError(f"{file} is no CSV: look at line {lines.line_num}.") from None
    type_of = {column["column"].lower(): column["type"] for column in columns}
    values: dict[str, list[Any]] = {}
    for name, value in rows:
        values.setdefault(name, []).append(_typed(value, type_of.get(name.lower(), "VARCHAR")))
    return Described(
        shapes={name: {"values": listed} for name, listed in values.items() if any(x is not None for x in listed)}
    )


def _typed(text: str, type_: str) -> Any:
    """A text of a data dictionary as a value of a column's type; as it is where it is none."""
    dtype = types.find(type_)
    if not text:
        return None
    readers: list[Callable[[str], Any]] = []
    if isinstance(dtype, types.Truth):
        readers = [
            lambda word: {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}[word.lower()]
        ]
    elif dtype is not None and dtype.numeric:
        readers = [int] if isinstance(dtype, types.Whole) else [int, float]
    for reader in readers:
        try:
            return reader(text)
        except (KeyError, ValueError):
            continue
    return text


def write(path: str, table: str, declared: Iterable[Attribute], missing: Mapping[str, tuple[str, list[str]]]) -> None:
    """Write declarations to a file that ``read`` reads.

    Args:
        path: of the file, .toml or .json; one that is there already may say less, and nothing else.
        table: the table's name in SQL.
        declared: the attributes.
        missing: column -> (its type, lines of TOML to fill in), as comments of the TOML.

    Raises:
        DPError: another file is there, or it cannot be written.

    Privacy: declarations are public.
    """
    words = {found.name: _shape(found) for found in declared}
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        text = json.dumps(words, indent=2, ensure_ascii=False) + "\n"
    elif suffix == ".toml":
        text = _as_toml(path, table, words, missing)
    else:
        raise DPError(f"{_name(path)} is no name for a domain: save := 'domain.toml', or a name that ends in .json.")
    try:
        if Path(path).exists() and not _says_no_more(path, words):
            raise DPError(f"{_name(path)} exists and says something else; save under another name, or remove it first.")
        Path(path).write_bytes(text.encode())
    except OSError as error:
        raise DPError(f"{_name(path)} cannot be written: {error.strerror}.") from None


def _says_no_more(path: str, words: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a file was written from some of these declarations, so that another one of all of them loses nothing."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        found = _plain(tomllib.loads(text)) if Path(path).suffix.lower() == ".toml" else json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and all(words.get(name) == shape for name, shape in found.items())


def _name(path: str) -> str:
    return as_sql(path, STATEMENT)


def _shape(found: Attribute) -> dict[str, Any]:
    """The words that declare an attribute; even bins by low, high and step."""
    flags: dict[str, Any] = {word: True for word in ("other", "nulls") if getattr(found, word)}
    if found.decimals is not None:
        flags["decimals"] = found.decimals
    if found.at_least is not None:
        flags["at_least"] = found.at_least
    if found.kind == "integers":
        return {"low": found.points[0], "high": found.points[1], **flags}
    if found.kind == "bins" and found.dtype.numeric and len(found.points) > 3:
        low, second, *_, high = found.points
        step = round(float(second) - float(low), 12)
        even: dict[str, Any] = {"low": low, "high": high, "step": int(step) if step.is_integer() else step}
        try:
            if declare(name=found.name, type=found.type, **even, **flags) == found:
                return {**even, **flags}
        except DPError:
            pass  # such as a step of 1, which is no bins
    return {found.kind: [*found.points], **flags}


def _as_toml(
    path: str, table: str, words: Mapping[str, Mapping[str, Any]], missing: Mapping[str, tuple[str, list[str]]]
) -> str:
    lines = [
        f"# The values that columns of {table} may take. Public: never look them up in the data.",
        f"# Edit it, then: CALL dp_attributes({table}, {brief(quoted(path), 2**16)});",
    ]
    for name, shape in words.items():
        lines += ["", f"[{_toml_text(name)}]", *(f"{word} = {_toml_value(value)}" for word, value in shape.items())]
    if missing:
        lines += ["", "# Not declared; to use one of these, write its domain and take the # away:"]
    for name, (type_, needs) in missing.items():
        lines += ["", f"# [{_toml_text(name)}]  # {type_}", *(f"# {line}" for line in needs)]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    return (
        _toml_text(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else repr(value)
    )


def _toml_text(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
