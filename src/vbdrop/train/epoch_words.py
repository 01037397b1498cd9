"""The figures of an epoch, and a time span, in a few words."""

from vbdrop.train.metrics import Epoch


def duration(seconds: float) -> str:
    """Format a time span.

    Example:
        >>> duration(4.2), duration(75), duration(3 * 3600 + 240), duration(200_000)
        ('4 s', '1 min 15 s', '3 h 4 min', '2 d 7 h')
    """
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 600:
        return f"{total // 60} min {total % 60} s"
    if total < 3600:
        return f"{total // 60} min"
    if total < 48 * 3600:
        return f"{total // 3600} h {total % 3600 // 60} min"
    return f"{total // 86400} d {total % 86400 // 3600} h"


def figures(epoch: Epoch | None) -> str:
    """Describe an epoch's error and sparsity in a few words.

    Example:
        >>> from vbdrop.train.evaluation import Evaluation
        >>> from vbdrop.train.sparsity import Sparsity
        >>> figures(Epoch(3, 0.2, 1.0, 1.0, None, Evaluation(1000, 17, 0.1, 0.0), Sparsity(1000, {"fc": 20})))
        'error 1.70 %  weights  2.0 % (50x)'
    """
    if epoch is None or epoch.evaluation is None or epoch.sparsity is None:
        return ""
    text = f"error {epoch.evaluation.error:.2f} %"
    if epoch.sparsity.kept == 0:
        text += "  no weights left"
    elif epoch.sparsity.kept < epoch.sparsity.weights:
        share = 100 * epoch.sparsity.kept / epoch.sparsity.weights
        digits = 0 if epoch.sparsity.ratio >= 10 else 1
        text += f"  weights {share:4.1f} % ({epoch.sparsity.ratio:.{digits}f}x)"
    return text
