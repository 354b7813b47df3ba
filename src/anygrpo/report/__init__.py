"""A run folder as one HTML file that needs nothing else."""

from anygrpo.report.page import run_page, write_report

__all__ = ["run_page", "write_report"]
