"""What is known of frameworks and tools around us, one small module each.

Each begins with what it does not do, and imports nothing of its framework: what it
needs of it is handed to it, or looked up among the loaded modules.
"""
