"""The group's store: an offset for each partition, and a note where the group is new. Only used from here."""
