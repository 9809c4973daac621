"""Where answers go exactly once: transactions, and the thread that ends them."""
