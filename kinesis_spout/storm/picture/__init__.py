"""How a topology is shown: its plan in words, and as a Mermaid flowchart with what each component has done.

Pure: nothing here reads a running query or writes a file. Begin with ``wiring``.
"""

from kinesis_spout.storm.picture.explanation import Explanation
from kinesis_spout.storm.picture.wiring import mermaid

__all__ = ["Explanation", "mermaid"]
