"""Where requests come from: one consumer in a group."""
