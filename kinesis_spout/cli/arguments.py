"""How the commands spell a setting."""

from kinesis_spout.settings.table import SETTINGS


def as_argument(setting: str, value: str | None) -> str | None:
    """Spell a setting as the commands take it; None if no setting has that name. See ``settings.messages``."""
    if setting not in SETTINGS:
        return None
    said = value.lower() if value in {"True", "False"} else value
    if SETTINGS[setting].has_argument:
        option = "--" + setting.replace("_", "-")
        return option if said is None else f"{option} {said}"
    return f"--set {setting}" if said is None else f"--set {setting}={said}"
