"""Where answers go at least once: one idempotent producer."""
