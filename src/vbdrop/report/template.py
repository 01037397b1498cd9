"""From a template to a self-contained page; everything that comes from a record is escaped."""

import json
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def fill(name: str, **values: Any) -> str:  # noqa: ANN401 -- whatever a template takes
    """Fill a template of this room.

    Args:
        name: The file of the template.
        **values: Its variables; text is escaped.

    Example:
        >>> page = fill("tables.html", title="<b>", tables=[])
        >>> "<title>&lt;b&gt;</title>" in page
        True
    """
    return _environment().get_template(name).render(values)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("vbdrop.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["json"] = _json
    environment.filters["drawing"] = Markup
    return environment


def _json(value: object) -> Markup:
    """Write JSON that is safe inside a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
