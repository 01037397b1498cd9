"""The parts of a run: a method that starts from a trained network trains it in the first share of the same run."""

from vbdrop.train.method import Step


def first_step(share: float, step: Step) -> int:
    """The index of the first step of the part that starts at this share of the run; never the very first step.

    Example:
        >>> first_step(0.25, Step(index=0, steps=100, epoch=0.0, epochs=1, n_train=100))
        25
    """
    return max(1, round(share * step.steps))


def started(share: float, step: Step) -> bool:
    """Whether this step belongs to the part that starts at this share of the run.

    Example:
        >>> started(0.25, Step(index=25, steps=100, epoch=0.25, epochs=1, n_train=100))
        True
    """
    return step.index >= first_step(share, step)


def starts_next(share: float, step: Step) -> bool:
    """Whether the next step is the first of the part that starts at this share of the run.

    Example:
        >>> starts_next(0.25, Step(index=24, steps=100, epoch=0.24, epochs=1, n_train=100))
        True
    """
    return step.index + 1 == first_step(share, step)
