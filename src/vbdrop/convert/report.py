"""What a conversion did: the layers that were converted, and those that were left, with the reason."""

from dataclasses import dataclass, field

from vbdrop.analysis.channel_groups import ChannelGroups

ITSELF = "the model"
"""How reports refer to the model itself, whose module name is empty."""


@dataclass(frozen=True)
class Conversion:
    """The outcome of `vbdrop.convert_`; readable when printed.

    Attributes:
        converted: Module name -> what it learns now.
        left: Module name -> why it was left unchanged.
        groups: The channels that can be removed together, if there were example inputs for `vbdrop.Units`: what shares
            each gate, and what fraction of the weights and multiply-adds belongs to a group.
        notes: What else is worth knowing, such as that no channel group was found.
    """

    converted: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    groups: list[ChannelGroups] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, kind: str, converted: list[str], left: dict[str, str], groups: ChannelGroups | None = None) -> None:
        """Record what one mode converted and left; a module that any mode has converted does not count as left.

        Args:
            kind: The mode's name.
            converted: The names of the modules that it converted.
            left: Module name -> the reason why it was left.
            groups: The channel groups that it found, if it looked for them.
        """
        if groups is not None:
            self.groups.append(groups)
        for name in converted:
            self.converted[name] = f"{self.converted[name]}, {kind}" if name in self.converted else kind
            self.left.pop(name, None)
        self.left.update({name: reason for name, reason in left.items() if name not in self.converted})

    def __str__(self) -> str:
        rows = [*self.converted.items(), *((name, f"left: {reason}") for name, reason in self.left.items())]
        width = max((len(name or ITSELF) for name, _ in rows), default=0)
        lines = [f"converted {len(self.converted)}, left {len(self.left)}"]
        lines += [f"  {name or ITSELF:<{width}}  {what}" for name, what in rows]
        for found in self.groups:
            shares = f"{100 * found.weights:.0f} % of the weights and {100 * found.macs:.0f} % of the multiply-adds"
            lines.append(f"{len(found.groups)} channel groups, with {shares} of linear layers and convolutions")
            for index, group in enumerate(found.groups):
                norms = sum(index in members[:, 0].tolist() for _, members in found.norms.values())
                gated = [f"{norms} norms"] * (norms > 0) + group.readers
                lines.append(f"  {group.name}: {group.units} gates, read by {', '.join(gated)}")
            named = {place: reason for place, reason in found.left.items() if place not in self.left}
            lines += [f"  in the way: {place}: {reason}" for place, reason in named.items()]
        return "\n".join([*lines, *self.notes])
