"""The HTML report: one page that needs no network."""
