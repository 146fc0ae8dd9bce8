"""What the providers of models accept and send, told without the product.

``rules_*`` judge request messages by the providers' published rules; ``render_*`` put a
neutral script into a provider's wire format; ``servers`` speaks that format and refuses
what breaks a rule. Nothing here imports ``durable_agent``.
"""
