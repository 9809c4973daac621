"""What the cases share: topics and requests, processes, loads, figures and tables."""
