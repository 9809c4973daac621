"""The live page at `/`, and the JSON object at `/status` that it draws."""
