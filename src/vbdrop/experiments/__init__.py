"""Experiments: runs with records, selection on validation data, and the paper's tables."""

from vbdrop.experiments.ablations import ABLATIONS, ablations
from vbdrop.experiments.comparison import Comparison, compare
from vbdrop.experiments.config import Config, make_method, resolve
from vbdrop.experiments.counts import LayerCount, count, units
from vbdrop.experiments.data_facts import checksums
from vbdrop.experiments.execution import BusyError, execute
from vbdrop.experiments.paper_tables import PROTOCOLS, protocol_of
from vbdrop.experiments.protocol import Column, Protocol, Row
from vbdrop.experiments.published import PUBLISHED, Published, published_in
from vbdrop.experiments.records import Record, all_records, record_of
from vbdrop.experiments.runner import Runner, RunsSummary, Watcher
from vbdrop.experiments.selection import ranked, settings
from vbdrop.experiments.table_runs import Book, Cell, Trial
from vbdrop.experiments.table_text import layout, markdown
from vbdrop.experiments.tables import Figures, Stat, Table, TableCell, table
from vbdrop.experiments.weights import trained_model

__all__ = [
    "ABLATIONS",
    "PROTOCOLS",
    "PUBLISHED",
    "Book",
    "BusyError",
    "Cell",
    "Column",
    "Comparison",
    "Config",
    "Figures",
    "LayerCount",
    "Protocol",
    "Published",
    "Record",
    "Row",
    "Runner",
    "RunsSummary",
    "Stat",
    "Table",
    "TableCell",
    "Trial",
    "Watcher",
    "ablations",
    "all_records",
    "checksums",
    "compare",
    "count",
    "execute",
    "layout",
    "make_method",
    "markdown",
    "protocol_of",
    "published_in",
    "ranked",
    "record_of",
    "resolve",
    "settings",
    "table",
    "trained_model",
    "units",
]
