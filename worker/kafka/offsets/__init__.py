"""The group's store, an offset and a note for each partition: `KafkaOffsets` alone reads and writes it."""
