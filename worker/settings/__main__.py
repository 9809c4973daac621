"""Prints the reference of all settings as Markdown: `python -m worker.settings`. The README's tables come from here."""

from __future__ import annotations

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from worker.settings.sections import SECTIONS, is_secret, variable


def reference() -> str:
    """One Markdown table per section: variable, default, meaning."""
    parts = []
    for section, cls in SECTIONS.items():
        rows = [_row(section, key, field) for key, field in cls.model_fields.items()]
        parts.append(
            f"**{section.upper()}**: {cls.__doc__}\n\n| variable | default | meaning |\n|---|---|---|\n"
            + "\n".join(rows)
        )
    return "\n\n".join(parts) + "\n"


def _row(section: str, key: str, field: FieldInfo) -> str:
    from_file = f" Or `{variable(section, key)}_FILE` names the file that holds it." if is_secret(section, key) else ""
    return f"| `{variable(section, key)}` | {_default(field)} | {field.description}{from_file} |"


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "" if field.default_factory else "required"
    if field.default in (None, (), {}):
        return ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201 - printing it is what this module is for
