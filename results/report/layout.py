# SPDX-License-Identifier: Apache-2.0
"""The templates of the report and of the web view: all output is escaped and visible."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from results.visible import visible


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("results.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )


def render_template(template: str, **values: object) -> str:
    """A page as HTML, from the template of that name and its values."""
    return _templates().get_template(template).render(**values)
