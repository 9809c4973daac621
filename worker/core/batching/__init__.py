"""Decides which requests share an inference, how long they wait for company, and how many records are taken."""
