"""Parts that commands share: they read options, and write to a terminal."""
