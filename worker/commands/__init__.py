"""The commands that an operator of a worker needs; those that measure, try out and mend are in `worker.tools`."""
