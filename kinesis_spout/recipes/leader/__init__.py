"""Work that one process does at a time, and another takes over: ``LeaderCareer``.

Who owns which shard is not here but in ``consumer``; how ZooKeeper elects is in ``zookeeper/members/election.py``.
Begin reading at ``career.py``.
"""

from kinesis_spout.ports.term import Term
from kinesis_spout.recipes.leader.career import HandOver, Leader, LeaderCareer
from kinesis_spout.recipes.leader.stand_for import stand_for

__all__ = ["HandOver", "Leader", "LeaderCareer", "Term", "stand_for"]
