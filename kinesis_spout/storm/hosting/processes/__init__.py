"""Who owns the processes of components, and leases them: this process, or the one host process of the machine.

What is said to them is not here but in the room above. Begin with ``children``, on Spark with ``hosted_children``.
"""

from kinesis_spout.storm.hosting.processes.child_process import ChildSettings, check_command
from kinesis_spout.storm.hosting.processes.children import ChildKey, Children, Keeper, Lease, NotYet
from kinesis_spout.storm.hosting.processes.hosted_children import HostedChildren, host_conf

__all__ = [
    "ChildKey",
    "ChildSettings",
    "Children",
    "HostedChildren",
    "Keeper",
    "Lease",
    "NotYet",
    "check_command",
    "host_conf",
]
