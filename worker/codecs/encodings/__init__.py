"""The encodings: Open Inference Protocol as JSON, protobuf and binary data, and plain rows. One object reads each."""
