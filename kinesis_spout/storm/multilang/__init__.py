"""Storm's multilang protocol: bolts and spouts in any language, as processes that talk over pipes.

``frames`` and ``messages`` are the protocol, ``conversation`` its states; these are pure. ``component`` is to
write components in Python, ``spout_component`` is our spout as one. Begin with ``messages``. Running components of
others is ``storm.hosting``'s.
"""
