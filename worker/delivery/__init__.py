"""Makes finished work durable. One class per guarantee, behind the loop's `Delivery` protocol.

For a model with state there are also wrappers around their producers.
"""
