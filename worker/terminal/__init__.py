"""What commands share: how they read their options and how they write to a terminal."""
