"""One module for each case: `measured` runs it and yields its tables."""
