"""On which machine a task has what it must come back to, such as the process of a shell bolt.

What such a task has there is not here: see ``multilang.host.processes``. Begin with ``homes``.
"""

from kinesis_spout.topology.homes.homes import Homes, HomesAddress, HomesClient, Question, homes_of

__all__ = [
    "Homes",
    "HomesAddress",
    "HomesClient",
    "Question",
    "homes_of",
]
