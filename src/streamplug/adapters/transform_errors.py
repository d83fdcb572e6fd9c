"""Notes on errors of transforms and collation, which name the sample or the batch."""

from __future__ import annotations

from streamplug.errors import add_note
from streamplug.session.sample_usage import describe_sample, latest_uses
from streamplug.session.session import Session


def note_sample(error: Exception, session: Session, number: int) -> None:
    """Name a sample of the latest batch, in which `number` samples precede it."""
    uses = latest_uses(session)
    if number < len(uses):
        use = uses[number]
        text = describe_sample(session, use.sample, use.epoch, use.step)
        substitute = ", or its substitute" if session.substitution_options.enabled else ""
        add_note(error, f"raised for {text}{substitute}")


def note_batch(error: Exception, session: Session) -> None:
    """Name the latest batch."""
    uses = latest_uses(session)
    if uses:
        use = uses[0]
        call = f"dataset.explain({use.step}, epoch={use.epoch}, rank={use.rank})"
        add_note(error, f"raised for the batch of the samples that {call} lists")
