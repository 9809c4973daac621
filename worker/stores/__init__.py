"""Where states lie that are not in memory: in a directory of this machine, or in a server that others read, too.

| module | what it owns |
|---|---|
| `local` | a directory: files that have the states, and which key has which |
| `private_files` | how files of such a directory are opened, where others may write to it |
| `server` | what is said to a Valkey or Redis server, and what is found out before the first request |
| `link` | the thread that says it |
"""

from worker.stores.local import LocalStore

__all__ = ["LocalStore"]
