"""Sphinx's configuration of the documentation site; build.py collects the pages."""

from __future__ import annotations

import txlog

project = "txlog"
author = "The txlog authors"
project_copyright = author
release = txlog.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
root_doc = "index"

html_theme = "furo"
html_title = f"txlog {release}"

myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "description"
# Classes of the API are named where they live, and by the package that gives them out.
suppress_warnings = ["ref.python"]
