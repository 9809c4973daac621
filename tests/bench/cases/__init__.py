"""What is measured, a module each. A case takes the `Bench` and yields a section for each table it makes."""
