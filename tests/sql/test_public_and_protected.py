"""Views that are protected and read public tables and views: these stay public, and what is read beside them does not become so."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.conftest import Loaded

numbers = count()

PUBLIC = {
    "a view of a file": "VIEW {x}courses AS FROM '{d}/courses.parquet'",
    "a view of files": "VIEW {x}courses AS FROM read_csv('{d}/courses*.csv', columns := {{'code': 'INTEGER', 'dept': 'INTEGER'}})",
    "a view of a table": "VIEW {x}courses AS FROM listed",
    "a view of a view": "VIEW {x}courses AS FROM over_listed",
    "a table": "TABLE {x}courses AS FROM listed",
}
"""What is declared public."""

READ = {
    "joined": "FROM marks JOIN {x}courses USING (code)",
    "in a subquery": "SELECT * FROM marks WHERE code IN (SELECT code FROM {x}courses)",
    "in a WITH": "WITH c AS (FROM {x}courses) SELECT * FROM marks JOIN c USING (code)",
    "through a view": "FROM marks JOIN over_{x}courses USING (code)",
    "through a macro": "FROM marks JOIN all_{x}courses() USING (code)",
    "through query": "FROM marks JOIN query('FROM {x}courses') USING (code)",
    "beside a file": "FROM '{d}/marks.parquet' JOIN {x}courses USING (code)",
}
"""How a view that is protected reads it."""


@pytest.fixture
def school(files: Any) -> Iterator[Any]:
    """It without the views that are protected, so that each case is refused for its own one."""
    yield files
    for (name,) in files("SELECT view_name FROM duckdb_views() WHERE view_name LIKE '%exams'"):
        files(f"DROP VIEW {name}")


@pytest.fixture(scope="module")
def files(shared: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Marks, which are private, and a list of courses: in tables and in files."""
    d = tmp_path_factory.mktemp("files")
    shared("CREATE TABLE marks AS SELECT i % 50 AS student, (i % 20)::INTEGER AS code FROM range(400) t(i)")
    shared("CREATE TABLE listed AS SELECT i::INTEGER AS code, (i % 3)::INTEGER AS dept FROM range(20) t(i)")
    shared(
        "CREATE VIEW over_listed AS FROM listed; CREATE VIEW over_marks AS FROM marks; CREATE TABLE loans AS FROM marks"
    )
    for name in ("listed", "marks"):
        shared(f"COPY {name} TO '{d}/{name}.parquet'; COPY {name} TO '{d}/{name}.csv'")
    shared(f"COPY listed TO '{d}/courses.parquet'; COPY listed TO '{d}/courses.csv'")
    (d / "other").symlink_to(d / "marks.parquet")
    (d / "deep").mkdir()
    (d / "deep" / "linked.parquet").hardlink_to(d / "marks.parquet")
    shared("CALL dp_protect('loans', unit := 'student', max_rows := 8, rho := 1e6)")
    shared.d = d  # type: ignore[attr-defined]
    return shared


def declare(school: Any, public: str, protected: str, x: str) -> None:
    """Declares a table or view public, and then protects a view."""
    for text in (public, "VIEW over_{x}courses AS FROM {x}courses", "MACRO all_{x}courses() AS TABLE FROM {x}courses"):
        school(f"CREATE {text.format(x=x, d=school.d)}")
    school(f"CALL dp_public('{x}courses')")
    school(f"CREATE VIEW {x}exams AS {protected.format(x=x, d=school.d)}")
    school(protect(x))


def protect(x: str) -> str:
    return f"CALL dp_protect('{x}exams', unit := 'student', max_rows := 8, rho := 1, another := true)"


def joined(x: str) -> str:
    return f"FROM dp_sql('SELECT dept, count(*) AS n FROM loans JOIN {x}courses USING (code) GROUP BY dept', rho := 1)"


@pytest.mark.some(4)
@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("public", PUBLIC)
def test_what_is_public_stays_so_when_a_view_that_reads_it_is_protected(school: Any, public: str, read: str) -> None:
    x = f"x{next(numbers)}_"
    declare(school, PUBLIC[public], READ[read], x)
    assert len(school(joined(x))) == 3
    assert school(f"CALL dp_public('{x}courses')") == [(f"memory.main.{x}courses", "everywhere")]
    school(f"CREATE VIEW {x}more AS SELECT code, dept AS d FROM {x}courses; CALL dp_public('{x}more')")
    assert school(f"FROM dp_sql('SELECT d, count(*) AS n FROM loans JOIN {x}more USING (code) GROUP BY d', rho := 1)")


BOTH = {
    "the table too": ("marks", "FROM {p} JOIN {x}courses USING (code)"),
    "in a subquery": ("marks", "FROM {p} WHERE code IN (SELECT code FROM {x}courses)"),
    "a view too": ("over_marks", "FROM {p} JOIN {x}courses USING (code)"),
    "through another view": ("marks", "FROM over_{p} JOIN {x}courses USING (code)"),
    "the file too": ("'{d}/marks.parquet'", "FROM {p} JOIN {x}courses USING (code)"),
    "by a pattern": ("'{d}/marks.parquet'", "FROM '{d}/mark*.parquet' JOIN {x}courses USING (code)"),
    "the pattern by its file": ("'{d}/mar*.parquet'", "FROM '{d}/marks.parquet' JOIN {x}courses USING (code)"),
    "by a link": ("'{d}/marks.parquet'", "FROM read_parquet('{d}/other') JOIN {x}courses USING (code)"),
    "by another name": ("'{d}/marks.parquet'", "FROM '{d}/deep/*.parquet' JOIN {x}courses USING (code)"),
    "in a list": ("'{d}/marks.parquet'", "FROM read_parquet(['{d}/listed.parquet', '{d}/marks.parquet'], union_by_name = true) JOIN {x}courses USING (code)"),
    "by a macro": ("'{d}/marks.parquet'", "FROM read_{x}marks() JOIN {x}courses USING (code)"),
    "by query": ("'{d}/marks.parquet'", "FROM query('FROM ''{d}/marks.parquet''') JOIN {x}courses USING (code)"),
    "in a UNION": ("'{d}/marks.parquet'", "SELECT code, student FROM '{d}/marks.parquet' UNION ALL SELECT code, student FROM {x}courses"),
}  # fmt: skip
"""What a public view reads by now, and how a protected view reads it beside that view."""


@pytest.mark.some(3, "before")
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("way", BOTH)
def test_what_a_protected_view_reads_by_itself_too_is_not_public(school: Any, way: str, before: bool) -> None:
    """The public view read something else when it was declared, and was replaced: before, or after the other was protected."""
    read, protected = BOTH[way]
    x, p = f"x{next(numbers)}_", read.format(d=school.d)
    school(f"CREATE MACRO read_{x}marks() AS TABLE FROM '{school.d}/marks.parquet'")
    school(f"CREATE VIEW {x}courses AS SELECT 1 AS code, 2 AS dept, 3 AS student; CALL dp_public('{x}courses')")
    replaced = f"CREATE OR REPLACE VIEW {x}courses AS SELECT code, 1 AS dept, code AS student FROM {p}"
    exams = f"SELECT code, 1 AS student FROM ({protected.format(x=x, p=p, d=school.d)})"
    made = f"CREATE VIEW {x}exams AS {exams}; {protect(x)}"
    for text in [replaced, made] if before else [made, replaced]:
        school(text)
    for call in (joined(x), f"CALL dp_public('{x}courses')"):
        line = school.refused(call)
        assert f"'{x}courses' may be read from '{x}exams', which is protected, so it is not public" in line


def test_a_protected_view_of_public_things_alone_keeps_them_private(school: Any) -> None:
    """Else nothing would be private of a public view that reads people by now, and is protected through another one."""
    school("CREATE VIEW alone AS SELECT 1 AS code, 2 AS dept, 3 AS student; CALL dp_public('alone')")
    school(f"CREATE OR REPLACE VIEW alone AS SELECT student, code, 1 AS dept FROM '{school.d}/marks.parquet'")
    school("CREATE VIEW over_alone AS FROM alone; CREATE VIEW people_exams AS SELECT * FROM over_alone WHERE code > 2")
    school("CALL dp_protect('people_exams', unit := 'student', max_rows := 8, rho := 1, another := true)")
    asked = "FROM dp_sql('SELECT dept, count(*) AS n FROM loans JOIN alone USING (code) GROUP BY dept', rho := 1)"
    assert "'alone' may be read from 'people_exams', which is protected" in school.refused(asked)


def test_what_a_protected_view_reads_is_not_declared_public_later(school: Any) -> None:
    """A declaration stays as it was made first: what the view reads was private when it was protected."""
    school("CREATE VIEW halls AS FROM listed; CREATE VIEW halls_exams AS FROM marks JOIN halls USING (code)")
    school("CALL dp_protect('halls_exams', unit := 'student', max_rows := 8, rho := 1, another := true)")
    assert "'halls' may be read from 'halls_exams', which is protected" in school.refused("CALL dp_public('halls')")
    school("CREATE TABLE known_halls AS FROM halls; CALL dp_public('known_halls')")
    assert school(
        "FROM dp_sql('SELECT dept, count(*) AS n FROM loans JOIN known_halls USING (code) GROUP BY ALL', rho := 1)"
    )


@pytest.mark.parametrize(
    "hidden",
    [
        "CREATE SCHEMA {x}s; CREATE VIEW {x}s.{x}rooms AS FROM '{d}/marks.parquet'",
        "CREATE MACRO {x}rooms() AS TABLE FROM '{d}/marks.parquet'",
        "DROP VIEW {x}rooms; CREATE MACRO {x}rooms() AS TABLE FROM '{d}/marks.parquet'",
    ],
)
def test_a_name_that_may_mean_something_else_is_not_public(school: Any, hidden: str) -> None:
    """A macro, or a view of another schema, of the name of a public view is not that view."""
    x = f"x{next(numbers)}_"
    school(f"CREATE VIEW {x}rooms AS FROM listed; CREATE VIEW {x}seats AS SELECT 1 AS code, 2 AS dept")
    school(f"CALL dp_public(['{x}rooms', '{x}seats'])")
    school(hidden.format(x=x, d=school.d))
    source = f"{x}rooms()" if "MACRO" in hidden else f"{x}s.{x}rooms"
    school(f"CREATE VIEW {x}exams AS SELECT student, r.code FROM loans JOIN {source} r USING (student)")
    school(protect(x))
    school(f"CREATE OR REPLACE VIEW {x}seats AS SELECT code, student AS dept FROM '{school.d}/marks.parquet'")
    asked = f"FROM dp_sql('SELECT dept, count(*) AS n FROM loans JOIN {x}seats USING (code) GROUP BY dept', rho := 1)"
    assert f"'{x}seats' may be read from '{x}exams', which is protected" in school.refused(asked)


def test_two_protected_views_that_share_a_public_one_are_not_of_the_same_people(exact: Loaded, tmp_path: Path) -> None:
    exact("CREATE TABLE a AS SELECT i % 5 AS who, i % 4 AS code FROM range(20) t(i); CREATE TABLE b AS FROM a")
    exact(f"COPY (SELECT i AS code, i % 2 AS dept FROM range(4) t(i)) TO '{tmp_path}/c.parquet'")
    exact(f"CREATE VIEW c AS FROM '{tmp_path}/c.parquet'; CALL dp_public('c')")
    notes = []
    for name in ("a", "b", "b"):
        view = f"v{next(numbers)}"
        exact(f"CREATE VIEW {view} AS FROM {name} JOIN c USING (code)")
        ((*_, note),) = exact(f"CALL dp_protect('{view}', unit := 'who', max_rows := 4, rho := 1, another := true)")
        notes.append(note is not None and "its rows may be those of" in note)
    assert notes == [False, False, True]


def test_links_of_a_view_that_reads_a_public_parent(exact: Loaded, tmp_path: Path) -> None:
    """The parent's rows are public in these links, and no row that the view protects changes them."""
    exact(
        "CREATE TABLE people_2 (id INTEGER PRIMARY KEY, kind INTEGER); INSERT INTO people_2 SELECT i, i % 3 FROM range(40) t(i)"
    )
    exact("CREATE TABLE raw AS SELECT i AS loan, (i % 40)::INTEGER AS id, i % 6 AS code FROM range(80) t(i)")
    exact(f"COPY (SELECT i AS code, i % 2 AS dept FROM range(6) t(i)) TO '{tmp_path}/c.parquet'")
    exact(f"CREATE VIEW c AS FROM '{tmp_path}/c.parquet'; CALL dp_public('c')")
    exact("CREATE VIEW lent AS SELECT raw.*, dept FROM raw JOIN c USING (code)")
    exact("CALL dp_protect('people_2', rho := 9); CALL dp_attribute('people_2', 'kind', low := 0, high := 2)")
    exact("CALL dp_protect('lent', unit := 'id', max_rows := 2, rho := 9)")
    exact("""CALL dp_link('lent', "references" := {'id': 'people_2.id', 'code': 'c.code'})""")
    exact("CREATE TABLE syn AS FROM dp_synthesize('people_2', rho := 1)")
    assert exact("FROM dp_links('lent', synthetic := {'people_2': 'syn', 'c': 'c'}, rho := 1)")
    exact("CREATE OR REPLACE VIEW c AS SELECT code, id AS dept FROM raw")
    with pytest.raises(duckdb.Error, match="'c' may be read from "):
        exact("FROM dp_links('lent', synthetic := {'people_2': 'syn', 'c': 'c'}, rho := 1, fresh := true)")
