# ruff: noqa: INP001  # a script beside what it writes; nothing installs it
"""Writes the Grafana dashboard from the table in panels.py: `python -m deploy.observability.dashboard`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from deploy.observability.panels import ROWS, WIDTH, Panel

DASHBOARD = Path(__file__).with_name("dashboard.json")

HEIGHT = {"stat": 4, "timeseries": 8, "table": 6}
CHOSEN = 'job=~"$job",instance=~"$instance"'
SOURCE = {"type": "prometheus", "uid": "${source}"}

Json = dict[str, Any]


def dashboard() -> Json:
    """The whole, as Grafana imports it."""
    return {
        "title": "Inference worker",
        "uid": "inference-worker",
        "tags": ["inference-worker", "kafka"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,  # one crosshair over all panels
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": list(_panels()),
    }


def expressions() -> Iterator[tuple[Panel, str, str]]:
    """Every query of the table: its panel, its legend, and the expression as Grafana gets it."""
    for panels in ROWS.values():
        for panel in panels:
            for legend, query in panel.queries.items():
                yield panel, legend, _ours(query)


def _ours(query: str) -> str:
    """`@up` and `@process_...` are names that every program has; all others are the worker's."""
    return re.sub(r"@(\w+)(?:\{(.*?)\})?", _metric, query)


def _metric(found: re.Match[str]) -> str:
    name, labels = found.groups()
    is_common = name == "up" or name.startswith("process_")
    return f"{'' if is_common else 'inference_worker_'}{name}{{{f'{labels},' if labels else ''}{CHOSEN}}}"


def _panels() -> Iterator[Json]:
    """Rows and panels from left to right, top to bottom, numbered."""
    number, y = 0, 0
    for title, panels in ROWS.items():
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": _at(0, y, 24, 1),
        }
        x, y = 0, y + 1
        for panel in panels:
            if x + panel.width > WIDTH:
                x, y = 0, y + HEIGHT["timeseries"]
            number += 1
            yield _panel(panel, number, _at(x, y, panel.width, HEIGHT[panel.kind]))
            x += panel.width
        y += HEIGHT[panels[-1].kind]


def _panel(panel: Panel, number: int, at: Json) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.note,
        "datasource": SOURCE,
        "gridPos": at,
        "targets": [_target(panel, *query) for query in zip(ascii_uppercase, panel.queries.items(), strict=False)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        **_LOOKS[panel.kind],
    }


def _target(panel: Panel, name: str, query: tuple[str, str]) -> Json:
    legend, expression = query
    is_now = panel.kind != "timeseries"
    return {
        "refId": name,
        "datasource": SOURCE,
        "expr": _ours(expression),
        "legendFormat": legend or panel.title,
        "instant": is_now,
        "range": not is_now,
        "format": "table" if panel.kind == "table" else "time_series",
    }


def _defaults(panel: Panel) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    if panel.bad_above is not None:
        steps.append({"color": "red", "value": panel.bad_above})
    thresholds = {"mode": "absolute", "steps": steps}
    defaults: Json = {"unit": panel.unit, "min": 0, "noValue": "no traffic", "thresholds": thresholds}
    if panel.kind == "timeseries":
        is_marked = panel.bad_above is not None
        defaults["custom"] = {
            "drawStyle": "line",
            "fillOpacity": 30 if panel.is_stacked else 0,
            "lineWidth": 1,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.is_stacked else "none"},
            "thresholdsStyle": {"mode": "dashed" if is_marked else "off"},
        }
    return defaults


def _at(x: int, y: int, width: int, height: int) -> Json:
    return {"x": x, "y": y, "w": width, "h": height}


_LOOKS: dict[str, Json] = {
    "stat": {"options": {"colorMode": "value", "graphMode": "none", "reduceOptions": {"calcs": ["lastNotNull"]}}},
    "timeseries": {
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    },
    "table": {
        "options": {"showHeader": True},
        "transformations": [
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": dict.fromkeys(("Time", "Value", "Value #A", "Value #B", "__name__"), True)
                },
            },
        ],
    },
}


def _variables() -> list[Json]:
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return [source, _label("job", ""), _label("instance", 'job=~"$job"')]


def _label(name: str, chosen: str) -> Json:
    """`All` is the list of ours, not a pattern that fits whatever else has an `up` or a `process_` metric."""
    query = f"label_values(inference_worker_ready{{{chosen}}}, {name})"
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,  # with the time range: replicas come and go
    }


def text() -> str:
    """The file's content."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DASHBOARD.write_text(text())
