"""The encodings: Open Inference Protocol as JSON, protobuf and binary data, and raw rows."""
