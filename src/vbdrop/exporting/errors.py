"""What an export raises."""


class ExportError(RuntimeError):
    """The model could not be exported, or what was written does not agree with it; no file is left behind."""
