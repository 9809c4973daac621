"""This release's number. pyproject.toml reads it here; to look it up in what is installed took 20 ms of each start."""

VERSION = "0.1.0"
