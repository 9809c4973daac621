"""The reference of settings as Markdown: `python -m tests.settings_reference docs/settings.md` writes it there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pydantic.fields import FieldInfo

from worker.settings.sections import SECTIONS, is_secret, variable

_BETWEEN_MARKERS = re.compile(r"(<!-- settings: .*? -->\n).*?(<!-- end of settings -->)", re.DOTALL)


def reference() -> str:
    """Return one Markdown table per section: variable, default with the other choices, meaning."""
    parts = []
    for section, cls in SECTIONS.items():
        # Required settings and the section's own come before those that it shares.
        own = sorted(
            cls.model_fields, key=lambda key: not (cls.model_fields[key].is_required() or key in cls.__annotations__)
        )
        head = f"**{section.upper()}**: {cls.__doc__}\n\n| variable | default (or) | meaning |\n|---|---|---|"
        parts.append("\n".join([head, *(_row(section, key, cls.model_fields[key]) for key in own)]))
    return "\n\n".join(parts) + "\n"


def with_reference(document: str) -> str:
    """Return the document with the reference between its markers. Raises `ValueError` without one pair of them."""
    found, count = _BETWEEN_MARKERS.subn(lambda marks: f"{marks[1]}\n{reference()}\n{marks[2]}", document)
    if count != 1:
        raise ValueError(f"{count} places are marked by <!-- settings: ... --> and <!-- end of settings -->, not one")
    return found


def _row(section: str, key: str, field: FieldInfo) -> str:
    secret = " A secret." if is_secret(section, key) else ""
    choices = re.findall(r"'([^']*)'", " ".join(re.findall(r"Literal\[(.*?)\]", str(field.annotation))))
    others = ", ".join(f"`{value}`" for value in choices if value != field.default and len(choices) > 1)
    values = f"{_default(field)}{f' ({others})' if others else ''}".strip()
    return f"| `{variable(section, key)}` | {values} | {field.description}{secret} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory or field.default in (None, (), {}):
        return ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_reference(page.read_text(encoding="utf-8")), encoding="utf-8")
