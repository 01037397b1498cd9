"""What a conversion did: the layers that were converted, and those that were left, with the reason."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Conversion:
    """The outcome of `vbdrop.convert_`; readable when printed.

    Attributes:
        converted: Module name -> what it learns now.
        left: Module name -> why it was left as it is.
    """

    converted: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        names = [*self.converted, *self.left]
        width = max((len(name) for name in names), default=0)
        lines = [f"converted {len(self.converted)}, left {len(self.left)}"]
        lines += [f"  {name:<{width}}  {what}" for name, what in self.converted.items()]
        lines += [f"  {name:<{width}}  left: {why}" for name, why in self.left.items()]
        return "\n".join(lines)
