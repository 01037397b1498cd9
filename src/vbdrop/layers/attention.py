"""`torch.nn.MultiheadAttention` with its projections as separate steps, so that heads can be gated and removed."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from vbdrop.layers.linear import Linear
from vbdrop.layers.shared_gate import Gated, SharedGate


class OutProjection(Linear, NonDynamicallyQuantizableLinear):  # type: ignore[misc]  # torch's stub has no `bias=False`
    """The output projection of `torch.nn.MultiheadAttention` after `vbdrop.convert_`."""


class OpenAttention(nn.MultiheadAttention):
    """What `torch.nn.MultiheadAttention` computes, for any number of heads and any number of features per head.

    It calls ``out_proj`` as a module and reads all sizes from its weights and ``num_heads``; torch's own forward
    requires that the heads together have as many features as the input. The parameters and arguments are the same.
    Values may have a different number of features than queries and keys. Scores are always scaled by ``head_dim``, the
    original number of features of queries and keys, so that a feature that is zero can be removed from both.

    Example:
        >>> attention, x = nn.MultiheadAttention(6, 3, batch_first=True).eval(), torch.randn(2, 4, 6)
        >>> wanted, _ = attention(x, x, x)
        >>> found, _ = open_(attention)(x, x, x)
        >>> torch.allclose(found, wanted, atol=1e-6)
        True
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The attended values and, if requested, the attention weights, as torch returns them.

        Raises:
            RuntimeError: If ``is_causal`` is given without the mask that it describes, as in torch.
        """
        if is_causal and attn_mask is None:
            raise RuntimeError("`is_causal` is a hint about `attn_mask`, which must be given too; got None.")
        batched, order = query.dim() == 3, not self.batch_first and query.dim() == 3
        projected = self._projected(query, key, value)
        projected = projected if batched else [part.unsqueeze(0) for part in projected]
        projected = [part.transpose(0, 1) for part in projected] if order else projected
        q, k, v = (self._heads(part) for part in projected)
        mask = self._mask(q, k, key_padding_mask, attn_mask)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = q @ k.mT * self.head_dim**-0.5
            weights = torch.softmax(scores if mask is None else scores + mask, -1)
            weights = F.dropout(weights, dropout)
            out = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights if batched else weights.squeeze(0)
        else:
            out = F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=self.head_dim**-0.5)
        out = out.transpose(1, 2).flatten(2)
        out = out.transpose(0, 1) if order else out
        out = self.out_proj(out)
        return out if batched else out.squeeze(0), weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        bias = self.in_proj_bias
        if self.in_proj_weight is not None and query is key and key is value:
            return self._thirds(F.linear(query, self.in_proj_weight, bias), -1)
        weights: list[Tensor] = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        if self.in_proj_weight is not None:
            weights = self._thirds(self.in_proj_weight)
        biases = [None] * 3 if bias is None else self._thirds(bias)
        inputs = zip((query, key, value), weights, biases, strict=True)
        return [F.linear(x, weight, each) for x, weight, each in inputs]

    def _thirds(self, x: Tensor, dim: int = 0) -> list[Tensor]:
        """The parts for queries, keys and values; the output projection determines how many features values have."""
        values = self.out_proj.in_features
        if 3 * values == x.shape[dim]:
            return list(x.chunk(3, dim))
        keys = (x.shape[dim] - values) // 2
        return list(torch.split(x, [keys, keys, values], dim))

    def _heads(self, x: Tensor) -> Tensor:
        """Reshape to [batch, heads, positions, features of a head]."""
        return x.reshape(*x.shape[:-1], self.num_heads, -1).transpose(1, 2)

    def _mask(self, q: Tensor, k: Tensor, padding: Tensor | None, mask: Tensor | None) -> Tensor | None:
        """Both masks as one tensor to add to the scores, or None; `len` would fix the batch size of a trace."""
        added: Tensor | None = None
        batch = q.shape[0]
        if mask is not None:
            added = _added(mask, q)
            if mask.dim() == 3:
                if mask.shape[0] != batch * self.num_heads:
                    sizes = f"{batch} examples and {self.num_heads} heads"
                    raise ValueError(f"`attn_mask` must have one mask for each of {sizes}; got {mask.shape[0]} masks.")
                added = added.view(batch, self.num_heads, *mask.shape[1:])
        if padding is not None:
            padding = padding if padding.dim() == 2 else padding.unsqueeze(0)
            if padding.shape != (batch, k.shape[2]):
                wanted, found = (batch, k.shape[2]), tuple(padding.shape)
                raise ValueError(f"`key_padding_mask` must have the shape {wanted}, examples and keys; got {found}.")
            padding = _added(padding[:, None, None], q)
            added = padding if added is None else added + padding
        return added


class GatedAttention(Gated, OpenAttention):
    """An attention that reads a residual stream directly, as the first one of an encoder does, with the stream's gates.

    `gate_attention_` changes the class of an `OpenAttention` to this one. A tensor that serves as query, key and value
    is gated once, with one draw of the noise.
    """

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        gated = {id(x): x for x in (query, key, value)}
        gated = {number: self.gate(x) for number, x in gated.items()}
        return super()._projected(*(gated[id(x)] for x in (query, key, value)))

    @torch.no_grad()
    def make_plain_(self, threshold: float | None = None) -> None:
        """Fold the gates into the projection.

        Args:
            threshold: The ``log_alpha`` at or above which channels are dead; None uses each gate's own.
        """
        weight: Tensor = self.in_proj_weight
        weight.mul_(self.gate.values(threshold).to(weight.dtype))
        self.strip_()

    def strip_(self) -> None:
        """Remove the gates."""
        self._modules.pop("gate")
        self.__class__ = OpenAttention  # type: ignore[assignment]  # the class that it had


def gate_attention_(module: OpenAttention, gate: SharedGate) -> None:
    """Gate the inputs of an attention whose queries, keys and values share one projection, in place.

    Args:
        module: The attention.
        gate: The gates.
    """
    module.__class__ = GatedAttention
    module.add_module("gate", gate.train(module.training))


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -torch.inf)


def why_closed(module: nn.MultiheadAttention) -> str | None:
    """Why an attention module cannot become an `OpenAttention`, or None if it can.

    Example:
        >>> why_closed(nn.MultiheadAttention(4, 2)), why_closed(nn.MultiheadAttention(4, 2, add_zero_attn=True))
        (None, 'MultiheadAttention with bias_k, bias_v or add_zero_attn uses its weights functionally')
    """
    if type(module) not in (nn.MultiheadAttention, OpenAttention, GatedAttention):
        return f"{type(module).__name__} is a subclass of MultiheadAttention that may compute something else"
    if module.bias_k is not None or module.bias_v is not None or module.add_zero_attn:
        return "MultiheadAttention with bias_k, bias_v or add_zero_attn uses its weights functionally"
    return None


def open_(module: nn.MultiheadAttention) -> OpenAttention:
    """Turn an attention module into an `OpenAttention`, in place; its parameters stay the same objects.

    Raises:
        ValueError: If this is impossible; see `why_closed`.
    """
    if reason := why_closed(module):
        raise ValueError(f"`module` must be a MultiheadAttention that can be opened; {reason}.")
    module.__class__ = OpenAttention
    return module  # type: ignore[return-value]  # it is one now
