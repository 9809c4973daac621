"""The commands that an operator of a worker needs. Commands that measure, try out and mend are in `worker.tools`."""
