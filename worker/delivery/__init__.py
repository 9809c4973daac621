"""How finished work becomes durable. One class per guarantee, behind the loop's `Delivery` protocol."""
