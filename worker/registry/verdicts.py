"""The registry's answers that are no schema, by what the worker does: ask again, refuse the record, refuse to start."""

from __future__ import annotations

MOST_SAID = 300  # characters of an error's text: a proxy sends whole pages


class RegistryAway(Exception):
    """No answer came, or none that a registry gives: ask again later. The message says why."""


class RegistryRefuses(RegistryAway):
    """The registry does not take our login, or gives it no right. Asking again helps only if that changes there."""


class StillCompiling(RegistryAway):
    """The schema has come, and its text is being compiled."""


class NoCompiler(RegistryAway):
    """The schema has come, and its text cannot be compiled here until the operator installs a compiler."""


class NotInRegistry(Exception):
    """The registry has no such schema, or no such subject."""


class NotReadable(NotInRegistry):
    """The registry has the schema, and nothing here can read it."""


class NotTaken(Exception):
    """The registry does not take a schema: it does not fit the earlier ones of its subject, or is wrong."""
