"""`inference-worker publish`: sends the lines of a file, or made-up requests, to the request topic."""
