"""The trained model of a run, in a file beside its record."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from vbdrop.experiments.records import WEIGHTS, Record
from vbdrop.files import write_atomically
from vbdrop.models import build
from vbdrop.train import RecordError


def save_weights(model: nn.Module, folder: Path) -> None:
    """Save the ``state_dict`` of a trained model, including noise and masks.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> save_weights(nn.Linear(2, 2), folder)
        >>> [path.name for path in folder.iterdir()]
        ['weights.safetensors']
    """
    tensors = {name: value.detach().clone().contiguous() for name, value in model.state_dict().items()}
    write_atomically(folder / WEIGHTS, save(tensors))


def trained_model(record: Record) -> nn.Module:
    """Return the model of a run as trained, in eval mode; the method's ``finish`` makes the plain network from it.

    Raises:
        RecordError: The run has not ended, was made without keeping its weights, or its files are damaged.
    """
    config = record.config
    path = record.folder / WEIGHTS
    if not record.finished:
        raise RecordError(f"{record.folder} has not ended; the command that started it goes on with it")
    if not path.exists():
        raise RecordError(f"{record.folder} has no {WEIGHTS}: it was made without keeping them")
    model = config.build_method().build(build(config.model, **config.model_args))
    try:
        model.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise RecordError(f"{path} is damaged: {str(error).splitlines()[0]}") from error
    return model.eval()
