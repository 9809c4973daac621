"""Spans for requests that carry a trace. Imported only where tracing is switched on."""
