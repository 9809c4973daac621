"""What the group stores for a partition, an offset and a note beside it: `KafkaOffsets` alone reads and writes it."""
