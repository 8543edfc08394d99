"""The demo's two consumers, each a process of its own, and what both are told. Begin with ``plain``."""
