"""Sphinx: how the pages below docs/ become a site.

pip install '.[docs]'
sphinx-build -W -n --keep-going -b html docs build/site
"""

import lnfast

project = "lnfast"
author = "the lnfast authors"
copyright = f"{author}, BSD-3-Clause"
release = version = lnfast.__version__

# Nothing is fetched: no intersphinx, no fonts, no scripts but the theme's own.
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
html_theme = "furo"
html_title = f"lnfast {release}"
html_copy_source = html_show_sourcelink = False

# Names of ours in `single quotes` become links, arguments stay as they are.
default_role = "autolink"
autosummary_generate = False

# One style of signature: the compiled functions have no annotations. Types are told in words.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]

# What has no entry of its own: Python's errors, PyTorch where it is installed, the records' fields.
nitpick_ignore_regex = [
    ("py:exc", "KeyError|MemoryError|TypeError|ValueError"),
    ("py:obj", r"torch\..*"),
    ("py:obj", "|".join(lnfast.LayerNormCache._fields)),
]
