"""`inference-worker check`: would a worker with these settings start here, and what would it do?"""
