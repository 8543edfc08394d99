"""What the trials have shown: a line for each phase of each door, and what is wrong; or JSON."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.fault.suite.trials.evidence import TRIAL_CHECKERS, TrialEvidence

_SHOWN: Final = 5


@dataclass(frozen=True, kw_only=True)
class TrialReport:
    seed: int
    trials: Sequence[TrialEvidence]

    def violations(self) -> dict[str, list[str]]:
        """Name what is wrong, by the door and the check."""
        return {
            f"{trial.door}: {name}": found
            for trial in self.trials
            for name, check in TRIAL_CHECKERS.items()
            if (found := list(check(trial)))
        }

    @property
    def is_good(self) -> bool:
        return not self.violations()

    @property
    def endpoint_faults(self) -> Counter[str]:
        return sum(
            (Counter(each.endpoint_faults) for trial in self.trials for each in trial.phases), Counter()
        )

    def as_document(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "good": self.is_good,
            "violations": self.violations(),
            "endpoint_faults": self.endpoint_faults,
            "doors": {trial.door: _document(trial) for trial in self.trials},
        }


def _document(trial: TrialEvidence) -> dict[str, Any]:
    return {
        "records": len(trial.ledger),
        "failures": dict(trial.happened),
        "dead_letters": len(trial.lettered),
        "phases": [
            {
                "phase": str(each.phase),
                "records": each.phase.records,
                "per_second": each.per_second,
                "ratio_to_calm": trial.ratio(each),
                "seconds": each.all_seconds,
                "endpoint_faults": dict(each.endpoint_faults),
            }
            for each in trial.phases
        ],
    }


def trial_lines(report: TrialReport) -> list[str]:
    """Write the table, at most 80 columns."""
    out = [f"{'door, phase':<36}{'records':>9}{'per s':>9}{'of calm':>9}{'all after':>11}"]
    for trial in report.trials:
        for each in trial.phases:
            speed = "-" if each.per_second is None else f"{each.per_second:,.0f}"
            ratio = trial.ratio(each)
            share = "" if ratio is None else f"{ratio:.2f}"
            end = "never" if each.all_seconds is None else f"{each.all_seconds:.1f} s"
            name = f"{trial.door}: {each.phase}"
            out.append(f"{name:<36}{each.phase.records:>9,}{speed:>9}{share:>9}{end:>11}")
        out += [f"  {place:<56}{count:>10,}" for place, count in sorted(trial.happened.items())]
        out.append(f"  {'dead letters':<56}{len(trial.lettered):>10,}")
    out += [
        f"{'Kinesis answers: ' + kind:<58}{count:>10,}"
        for kind, count in sorted(report.endpoint_faults.items())
    ]
    violations = report.violations()
    out.append(f"{'violations of the doors':<58}{sum(map(len, violations.values())):>10,}")
    for name, found in violations.items():
        out.append(f"  {name:<56}{len(found):>10,}")
        out += [f"    {sentence}" for sentence in found[:_SHOWN]]
    out.append(f"seed {report.seed}")
    return out
