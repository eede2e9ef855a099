"""Great Expectations tells Correlator what it has found.

Importing the action from here makes Great Expectations know the type `correlator`, which checkpoints that were stored
as YAML or JSON need:

    from correlator.integrations.great_expectations import CorrelatorValidationAction
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from correlator.integrations.great_expectations.action import CorrelatorValidationAction

__all__ = ["CorrelatorValidationAction"]


def __getattr__(name: str) -> Any:
    # Great Expectations takes seconds to import: only who wants the action pays for it.
    if name == "CorrelatorValidationAction":
        from correlator.integrations.great_expectations.action import CorrelatorValidationAction  # noqa: PLC0415

        return CorrelatorValidationAction
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
