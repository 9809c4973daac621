# ruff: noqa: INP001  # a script beside the proto file, not a module of a package
"""Writes `worker/codecs/encodings/inference_pb2.py` from `inference.proto`: `make proto`.

Only the file's descriptor is kept, as bytes. protoc's own Python output would register the messages in protobuf's
default pool, where they collide with those of any other Open Inference Protocol client in the process.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

SCHEMAS = Path(__file__).resolve().parent
MODULE = SCHEMAS.parent / "worker" / "codecs" / "encodings" / "inference_pb2.py"
WIDTH = 88  # bytes of the descriptor on one line

TEMPLATE = '''"""Generated from schemas/inference.proto by schemas/generate.py: do not edit, run `make proto`."""

# The serialized FileDescriptorProto of schemas/inference.proto.
DESCRIPTOR = (
{lines}
)
'''


def generate() -> str:
    """The module's text for the proto file as it is now."""
    descriptor = _descriptor()
    chunks = [descriptor[at : at + WIDTH] for at in range(0, len(descriptor), WIDTH)]
    return TEMPLATE.format(lines="\n".join(f"    {chunk!r}" for chunk in chunks))


def _descriptor() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "descriptors"
        failed = protoc.main(["protoc", f"-I{SCHEMAS}", f"--descriptor_set_out={out}", "inference.proto"])
        if failed:
            sys.exit("protoc could not read schemas/inference.proto")
        files = FileDescriptorSet.FromString(out.read_bytes()).file
    descriptor: bytes = files[0].SerializeToString(deterministic=True)
    return descriptor


if __name__ == "__main__":
    MODULE.write_text(generate(), encoding="utf-8")
