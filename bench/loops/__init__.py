"""Loops written by hand, and ONNX Runtime alone: the worker's contenders in addition to the peers."""
