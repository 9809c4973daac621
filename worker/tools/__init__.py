"""The commands of a person other than `run` and `check`, a folder for each. `run` imports nothing from here."""
