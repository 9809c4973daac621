"""The release's number. pyproject.toml reads it here; to ask the installed package took 20 ms of each start."""

VERSION = "0.1.0"
