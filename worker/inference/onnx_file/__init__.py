"""The model's file, as far as it is read before ONNX Runtime loads it."""
