"""`inference-worker dead-letters`: lists reasons of rejections, shows letters whole, and sends their requests back."""
