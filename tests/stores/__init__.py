"""A real Valkey or Redis server for tests."""
