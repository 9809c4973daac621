"""Stores for states outside memory: a directory of this machine (`local`), or a server (`server`, `link`)."""

from worker.stores.local import LocalStore

__all__ = ["LocalStore"]
