"""The group's store: an offset and a note for each partition. Only `KafkaOffsets` reads and writes it."""
