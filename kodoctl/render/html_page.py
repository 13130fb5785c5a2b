"""HTML pages that load nothing: a template of a package, with style and script in the page, and a content security
policy that forbids every request.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from jinja2 import Environment


PACKAGE: Final = "kodoctl.render"


def page(template: str, *more: str, package: str = PACKAGE, **values: Any) -> str:
    """The text of a page: a template with `values`, which are escaped unless the template says `safe`. All names that
    it uses must be given. `more`: files of styles (`.css`) and scripts (`.js`) besides the common ones. `package`: has
    template and styles in its folder `templates`, and may use those of this package.
    """
    loaded = page_templates(package)
    texts = {name: loaded.loader.get_source(loaded, name)[0] for name in ("page.js", "page.css", *more)}  # type: ignore[union-attr]
    script, style = ("".join(text for name, text in texts.items() if name.endswith(end)) for end in (".js", ".css"))
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:"
    return loaded.get_template(template).render(style=style, script=script, policy=policy, **values)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def page_templates(package: str) -> Environment:
    """Templates in the folder `templates` of a package, and in that of this package, which come second for the same
    name. They escape every value that they do not mark as `safe`. All calls for a package return the same object.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(name, "templates") for name in dict.fromkeys((package, PACKAGE))])
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters["code"] = _code
    return made


def _code(text: str) -> str:
    """Text as HTML, in which parts between backticks are code."""
    from jinja2.filters import do_mark_safe

    parts = escape(text).split("`")
    if len(parts) % 2 == 0:  # one without its second
        return do_mark_safe("`".join(parts))
    return do_mark_safe("".join(f"<code>{one}</code>" if at % 2 else one for at, one in enumerate(parts)))
