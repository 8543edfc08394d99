"""What tests ask of the core."""

from shard_state import StateManager


def may_read(manager: StateManager, shard_id: str) -> bool:
    """Tell whether a fresh record of a shard may be handed out."""
    state = manager.staying(shard_id)
    return state is not None and state.may_read
