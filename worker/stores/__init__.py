"""Where states lie that are not in memory: `local` is a directory of this machine.

What they hold is a copy. The changelog has all of it.
"""

from worker.stores.local import LocalStore

__all__ = ["LocalStore"]
