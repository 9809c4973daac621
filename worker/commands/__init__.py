"""One module per command. A command reads settings, calls what does the work, and returns an exit code."""
