"""Files of requests and of answers: lines, `.npy` and `.npz`."""
