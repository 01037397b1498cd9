"""What a conversion did: the layers that were converted, and those that were left, with the reason."""

from dataclasses import dataclass, field

ITSELF = "the model"
"""How the model itself is called, whose name among its modules is empty."""


@dataclass(frozen=True)
class Conversion:
    """The outcome of `vbdrop.convert_`; readable when printed.

    Attributes:
        converted: Module name -> what it learns now.
        left: Module name -> why it was left as it is.
    """

    converted: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, converted: list[str], left: dict[str, str]) -> None:
        """Write down what one mode converted and left; what any mode has converted does not count as left.

        Args:
            kind: The mode's name.
            converted: The names of the modules that it converted.
            left: Module name -> the reason, for the others.
        """
        for name in converted:
            self.converted[name] = f"{self.converted[name]}, {kind}" if name in self.converted else kind
            self.left.pop(name, None)
        self.left.update({name: reason for name, reason in left.items() if name not in self.converted})

    def __str__(self) -> str:
        rows = [*self.converted.items(), *((name, f"left: {reason}") for name, reason in self.left.items())]
        width = max((len(name or ITSELF) for name, _ in rows), default=0)
        lines = [f"converted {len(self.converted)}, left {len(self.left)}"]
        return "\n".join([*lines, *(f"  {name or ITSELF:<{width}}  {what}" for name, what in rows)])
