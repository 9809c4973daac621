"""How finished work becomes durable. One class per guarantee, behind the loop's `Delivery` protocol.

Beside them stands what a model with state puts around their producer.
"""
