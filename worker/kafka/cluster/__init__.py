"""The cluster as an operator sees it: topics, limits, rights, versions."""
