"""What is known of frameworks, one module each, imported only where they are loaded.

Each module has an ``INTEGRATION`` (see ``durable_agent._frameworks``), begins with what
it does not do, and imports nothing of its framework: what it needs of it is looked up
among the loaded modules. There is nothing to call here.
``ipython`` alone is not asked about objects: notebooks load it by its magic.
"""
