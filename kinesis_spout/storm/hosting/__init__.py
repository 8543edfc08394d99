"""The host's side of components in other languages: their processes, and the bolt and spout that speak with them.

What is said is in the rooms above: ``frames``, ``messages``, ``conversation``. Begin with ``shell_bolt``;
who owns the processes is in ``processes``.
"""

from kinesis_spout.storm.hosting.processes.hosted_children import host_conf
from kinesis_spout.storm.hosting.shell_bolt import ShellBolt
from kinesis_spout.storm.hosting.shell_spout import ShellSpout

__all__ = ["ShellBolt", "ShellSpout", "host_conf"]
