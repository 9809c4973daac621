"""The cluster before the group is joined: its topics, limits, rights and versions."""
