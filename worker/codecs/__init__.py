"""The wire contract in code: headers and bytes to named tensors and back. `schemas/README.md` is the contract."""
