"""Storm's multilang protocol: bolts and spouts in any language, as processes that talk over pipes.

To write a component in Python, subclass ``BasicBolt``, ``Bolt`` or ``Spout`` and call its ``run``. The
protocol is ``protocol``, ``frames`` and ``conversation``, which are pure; ``kinesis_component`` is our spout
as a component. ``storm.hosting`` runs the components of others.
"""

from typing import TYPE_CHECKING, Final

from kinesis_spout.model.extras import lazy_names

if TYPE_CHECKING:
    from kinesis_spout.storm.multilang.bolts_and_spouts import BasicBolt, Bolt, Spout
    from kinesis_spout.storm.multilang.component import CannotContinue, Component
    from kinesis_spout.storm.multilang.frames import UnsendableValue
    from kinesis_spout.storm.multilang.protocol import TupleIn

__all__ = ["BasicBolt", "Bolt", "CannotContinue", "Component", "Spout", "TupleIn", "UnsendableValue"]

_NAMES: Final = {
    "kinesis_spout.storm.multilang.bolts_and_spouts": ("BasicBolt", "Bolt", "Spout"),
    "kinesis_spout.storm.multilang.component": ("Component", "CannotContinue"),
    "kinesis_spout.storm.multilang.frames": ("UnsendableValue",),
    "kinesis_spout.storm.multilang.protocol": ("TupleIn",),
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
