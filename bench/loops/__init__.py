"""Loops written by hand, and ONNX Runtime alone: what the worker is compared with besides the peers."""
