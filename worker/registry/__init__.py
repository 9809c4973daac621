"""The schema registry: the only room that talks to it. `Schemas` is the part that the loop asks (`ports.Schemas`).

It is imported only where records name their schemas, because its client is an extra.
"""
