"""The shared nouns: frozen structs that one part hands to another. Pure (AR-2).

JSON names are camelCase; instants are integer epoch milliseconds named ``…_at``.
"""
