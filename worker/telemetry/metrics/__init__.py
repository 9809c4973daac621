"""What is counted, and the page that shows it."""
