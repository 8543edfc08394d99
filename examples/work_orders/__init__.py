"""Filter rules are ordered, and one allocator gives each a slot of a device: ``python -m examples.work_orders``.

One allocator needs no locks, and always sees the whole: it fills the devices evenly. Several processes stand by.
Begin with ``allocator``; ``register`` is the database, and ``__main__`` what goes wrong and what is checked.
"""
