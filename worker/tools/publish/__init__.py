"""`inference-worker publish`: lines of a file, or made-up requests, to the request topic."""
