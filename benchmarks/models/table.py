"""The table of architectures: `ENTRIES`, by library and name."""

from benchmarks.models import from_timm, from_torchvision, from_transformers
from benchmarks.models.entry import Entry

ENTRIES: dict[str, Entry] = {
    entry.key: entry for source in (from_timm, from_torchvision, from_transformers) for entry in source.ENTRIES
}
"""All of them: ``"timm/resnet18"`` -> the entry."""
