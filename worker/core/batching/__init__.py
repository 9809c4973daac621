"""Which requests share an inference, how long they wait for company, and how much is taken at all."""
