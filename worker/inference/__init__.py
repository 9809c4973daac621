"""The model, and what runs it: a thread of this process (`thread_lane.py`), or a process of its own (`host/`).

Nothing else imports onnxruntime. A worker imports only `facts.py` and `host/`, so its own process has no ONNX Runtime.
"""

import os

# From 1.29 on ONNX Runtime sends its maker usage data over HTTPS, with the names of the model's file and graph, and
# keeps an identifier in the user's directory. It decides this once, at its import; 0 in the environment allows it.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
