"""The page of `aligntool report`: one HTML file that needs nothing else, not even a script.

In: what an audit found, the arrays, and charts of benchmarks. Out: the page as text, and each of its pictures by name.
Alone because a page is read by people who never type a command: nothing in it may rest on a terminal, on a colour, or
on a network.
"""

from aligntool.render.report.content import Content, pictures_of
from aligntool.render.report.page import page_html

__all__ = ["Content", "page_html", "pictures_of"]
