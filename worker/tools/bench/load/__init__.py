"""The load, the worker it is put on, and what the processes use meanwhile."""
