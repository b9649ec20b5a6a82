"""The report of a release as one HTML page without scripts, network access or other files."""

import base64
import csv
import html
import io
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duckdb_dp.accounting.base import find_accounting
from duckdb_dp.errors import DPError, as_sql, expect
from duckdb_dp.reporting import again, asked, charts, words
from duckdb_dp.reporting.answers import Answer, AnswerSet, text
from duckdb_dp.reporting.facts import Facts, gather
from duckdb_dp.request import Request

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from jinja2 import Template

LISTED = 100
"""Rows of a table on the page."""

TABLES = 1_500
"""Rows of all tables on the page; further sets have pictures alone."""

CELLS = 40_000
"""Cells of all pictures on the page; further sets are listed."""

NAMED = 200
"""Sets without a picture that are listed by name."""

ARGUMENTS = 4_000
"""Characters of a request that is shown as it is kept."""


@dataclass(frozen=True, slots=True)
class Page:
    """A finished report.

    Attributes:
        html: the whole page.
        path: where it was written; None where it was not.
    """

    html: str
    path: Path | None = None

    def save(self, path: str | Path) -> Path:
        """Write the page to a file; where it is now.

        Raises:
            DPError: it cannot be written there.
        """
        target = Path(path)
        try:
            target.write_text(self.html, encoding="utf-8")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "no file's name"
            raise DPError(f"report: {as_sql(str(target))} cannot be written ({why}).") from None
        return target

    def _repr_html_(self) -> str:
        """For notebooks: in a frame, so that neither style sheet reaches the other."""
        page = html.escape(self.html, quote=True)
        return f'<iframe title="Release report" srcdoc="{page}" style="width:100%;height:80vh;border:0"></iframe>'

    def __repr__(self) -> str:
        return f"Page({len(self.html):,} characters, path={str(self.path) if self.path else None!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One set of answers on the page: its picture, and its rows below."""

    title: str
    size: int
    error: str
    known: bool
    chart: charts.Chart
    note: str
    names: tuple[str, ...]
    rows: list[tuple[str, ...]]


def report(
    con: "DuckDBPyConnection", name: str | int, path: str | Path | None = None, *, postprocess: str | None = None
) -> Page:
    """A report on one release, as one HTML page that opens anywhere: offline, on paper, on a phone.

    It says what was asked, of which data, whom it protects and how well, what it cost and what is left, how it was
    drawn and how good that is, and shows the answers with their error bars.

    Args:
        con: a connection that ``duckdb_dp.load`` was called with.
        name: the release's name, or its number in ``dp_releases()``.
        path: a file to write the page to.
        postprocess: how the counts are read, 'unbiased', 'nonnegative' or 'fitted'; by default as ``dp_release`` does.

    Returns:
        The page; a notebook shows it.

    Raises:
        DPError: there is no such release, it cannot be read so, the connection is not loaded, or the file cannot be
            written.

    Privacy: post-processing. Reads the stored release and the ledger, never the data.
    """
    if path is not None:
        expect("report", "path", path, (str, Path), "a file's name, e.g. 'census.html'")
    page = Page(render(gather(con, name, postprocess)))
    return page if path is None else Page(page.html, page.save(path))


def render(facts: Facts) -> str:
    """The page of some facts."""
    release, charge, request = facts.release, facts.charge, facts.request
    noun, meaning = words.protected(charge, int(facts.arguments.get("max_rows", 1)))
    sections = _sections(facts)
    listed = [(found.title, found.size) for found in facts.rows.sets[len(sections) :]] + facts.rows.further
    return _template().render(
        release=release,
        charge=charge,
        budget=facts.budget,
        accounting=find_accounting(charge["accounting"]),
        heading=release["name"] or f"Release {release['release']}",
        noun=noun,
        meaning=meaning,
        protections=words.protections(charge, facts.budget),
        spent=_parts(facts),
        synthetic=words.SYNTHETIC.get(release["function"]),
        reading=again.reading(request, release, facts.postprocess),
        repeating=None
        if request is None or not facts.repeats
        else again.repeating(request, release, facts.postprocess),
        arguments=None if request is not None else release["request"][:ARGUMENTS],
        attributes=[] if request is None else [(a, asked.cells(a)) for a in request.attributes],
        mechanism=words.mechanism(charge),
        processed=words.PROCESSED.get(facts.postprocess or ""),
        plan=facts.plan,
        sections=sections,
        titles=[section.title for section in sections] or [title for title, _ in listed],
        listed=listed[:NAMED],
        unlisted=max(0, len(listed) - NAMED),
        total=facts.rows.total,
        questions=len(sections) + len(listed),
        columns=facts.rows.columns,
        sample=[[text(value) for value in row] for row in facts.rows.sample[:LISTED]],
        download=_download(facts),
        saved=len(facts.rows.sample),
        complete=facts.rows.complete,
        averages=request is not None and _averages(request),
        middles=[] if request is None else asked.middles(request),
        direct=request is not None and bool(request.direct),
        clamped=[] if request is None else asked.clamped(request),
        chosen=[] if request is None else asked.chosen(request),
        clipped=request is not None and asked.clipped(request),
        picked=request is not None and asked.picked(request),
        whole=request is None or not any(part.having or part.limit is not None for part in request.direct),
        quantiles=request is not None and asked.has_quantiles(request),
        lined=request is not None and request.lined,
        number=words.number,
        percent=words.percent,
        date=words.date,
        version=charge["version"],
        style=(files("duckdb_dp.reporting") / "page.css").read_text(encoding="utf-8"),
    )


def _averages(request: Request) -> bool:
    """Whether an average is among what was selected."""
    pieces = (piece for part in request.direct for output in part.outputs for piece in output.pieces)
    ratios = any(isinstance(piece, tuple) and piece[0] == "known" for piece in pieces)
    return ratios or any(column.function == "avg" for q in request.questions if q.select for column in q.select.columns)


@cache
def _template() -> "Template":
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise DPError("report: jinja2 is not installed. Install it: pip install 'jinja2>=3.1'") from None
    environment = Environment(
        loader=PackageLoader("duckdb_dp.reporting", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["exp"] = math.exp
    return environment.get_template("page.html.j2")


def _sections(facts: Facts) -> list[Section]:
    """As many sets of answers as the page may hold."""
    found: list[Section] = []
    cells = rows = 0
    for one in facts.rows.sets:
        if cells > CELLS:
            break
        chart, note = charts.chart(one)
        # Bars show every number already.
        table = [] if chart.kind == "bars" and len(one.answers) <= charts.BARS else _table(one.answers[:LISTED])
        if rows + len(table) > TABLES:
            table = []
        cells, rows = cells + min(one.size, charts.POINTS), rows + len(table)
        found.append(
            Section(
                title=one.title,
                size=one.size,
                error=_error(one),
                known=any(charts.half_width(answer) is not None for answer in one.answers),
                chart=chart,
                note=note,
                names=one.names,
                rows=table,
            )
        )
    return found


def _error(found: AnswerSet) -> str:
    """The half-width of the set's intervals: '± 91', or from the least to the largest."""
    halves = [half for answer in found.answers if (half := charts.half_width(answer)) is not None]
    if not halves:
        return ""
    low, high = (words.count(half, half) for half in (min(halves), max(halves)))
    return f"± {low}" if low == high else f"± {low} to ± {high}"


def _table(answers: list[Answer]) -> list[tuple[str, ...]]:
    """Labels, the answer, its standard deviation and its interval, as texts."""
    found = []
    for answer in answers:
        half = charts.half_width(answer)
        numbers = (answer.value, answer.stddev, answer.low, answer.high)
        found.append((*answer.labels, *("" if x is None else words.count(x, half) for x in numbers)))
    return found


def _parts(facts: Facts) -> tuple[float, float]:
    """Percent of the dataset's budget: what this release took, and what the others did."""
    total = facts.budget["total"]
    own = 100 * facts.charge["cost"] / total
    return own, max(0.0, 100 * facts.budget["spent"] / total - own)


def _download(facts: Facts) -> str:
    """The kept rows as CSV, inside the page."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(facts.rows.columns)
    writer.writerows([_cell(value) for value in row] for row in facts.rows.sample)
    return base64.b64encode(file.getvalue().encode()).decode()


def _cell(value: Any) -> Any:
    return "" if value is None else value
