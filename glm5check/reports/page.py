"""How pages are rendered: everything is escaped but our own SVG."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def environment() -> Environment:
    """Of the templates beside this file. A name that a template uses and nobody gave is an error."""
    made = Environment(
        loader=PackageLoader("glm5check.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["svg"] = Markup
    return made
