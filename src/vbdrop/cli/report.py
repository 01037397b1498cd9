"""``vbdrop report``: a page about runs, or about the paper's tables."""

from pathlib import Path
from typing import Annotated

import typer

from vbdrop.cli.console import out, verb
from vbdrop.cli.table_verbs import RECORDS
from vbdrop.experiments import PROTOCOLS, Book, Table, layout
from vbdrop.experiments import table as read_table
from vbdrop.experiments.table_text import chosen, missing, notes
from vbdrop.files import write_atomically
from vbdrop.report import PaperTable, render_report, render_tables

app = verb()

EXAMPLES = """\b
vbdrop report runs/vbd-weights-*                 one run: what it learned and kept
vbdrop report runs/vbd-weights-* runs/plain-*    several, side by side
vbdrop report --tables                           the paper's five tables, ours beside theirs
"""


@app.command(epilog=EXAMPLES)
def report(
    run: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN", help="The folders of the runs.", show_default=False)
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="Show the paper's tables instead, with figures from --records.")
    ] = False,
    records: Annotated[Path, typer.Option(metavar="DIR", help="The folder of records, for --tables.")] = RECORDS,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The page: report.html, or tables.html.", show_default=False
        ),
    ] = None,
) -> None:
    """Write a page about one or more runs that opens in any browser, offline.

    It shows error and sparsity over the epochs, what each layer learned, pictures of the remaining weights, error
    against size with a slider, latency and calibration. If a record lacks something, the page says which command
    makes it.
    """
    if tables == bool(run):
        raise typer.BadParameter("give the folder of at least one RUN, or --tables.")
    page = write_page(_tables(records) if tables else render_report(run or []), output or _default(tables))
    out().print(f"Written to {page}", soft_wrap=True)


def write_page(html: str, path: Path) -> Path:
    """Write a page, whole or not at all; the folder is created if it does not exist.

    Example:
        >>> import tempfile
        >>> write_page("<p>", Path(tempfile.mkdtemp()) / "pages/report.html").read_text()
        '<p>'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, html.encode())
    return path


def _default(tables: bool) -> Path:
    return Path("tables.html" if tables else "report.html")


def _tables(records: Path) -> str:
    if not records.is_dir():
        raise typer.BadParameter(f"--records must be a folder of records; there is no {records}.")
    return render_tables(
        [paper_table(number, read_table(Book(protocol, records))) for number, protocol in PROTOCOLS.items()]
    )


def paper_table(number: int, table: Table) -> PaperTable:
    """Lay out a table for the page.

    Args:
        number: Its number in the paper.
        table: Its figures.

    Example:
        >>> from vbdrop.experiments import protocol_of
        >>> laid_out = paper_table(3, read_table(Book(protocol_of(3), Path("no/such/folder"))))
        >>> laid_out.number, laid_out.sheets[0].rows[0]
        (3, ('No dropout', 'not run', '22.01'))
    """
    selection = chosen(table)
    sheets = [*layout(table), *([selection] if selection is not None else [])]
    return PaperTable(
        number,
        table.protocol.title,
        tuple(sheets),
        tuple(notes(table)),
        tuple(missing(table)),
    )
