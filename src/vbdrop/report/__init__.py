"""The report: from records to one self-contained page. Nothing here imports torch."""

from vbdrop.report.page import render_report
from vbdrop.report.paper import PaperTable, render_tables
from vbdrop.report.reading import ReportError
from vbdrop.report.walk import render_walk

__all__ = ["PaperTable", "ReportError", "render_report", "render_tables", "render_walk"]
