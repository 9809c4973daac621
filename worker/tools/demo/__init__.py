"""The demo's parts: what it shows, and the classifier it shows it with."""
