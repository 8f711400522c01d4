"""Models with a state that loop over their tokens in Python: one scan where the number of tokens is not known.

Source of semantics: the loops of ``transformers.models.mamba``, ``rwkv``, ``recurrent_gemma``, ``xlstm``, ``qwen3_next`` and
``kimi_linear``. A known number of tokens is left to them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch._higher_order_ops import scan

from experimental_experiment.torch_interpreter.patches.patch import Patch, patch, wrapped

RNN_SCAN = "transformers.models.recurrent_gemma.modeling_recurrent_gemma.RecurrentGemmaRglru._rnn_scan"
LINEAR_ATTENTION = "transformers.models.rwkv.modeling_rwkv.rwkv_linear_attention_cpu"
BACKEND = "transformers.models.xlstm.modeling_xlstm.xLSTMBackend.forward"
SELECTIVE = tuple(
    f"transformers.models.{name}.modeling_{name}.mamba_selective_scan"
    for name in ("falcon_mamba", "jamba", "mamba", "zamba")
)
CHUNKED = tuple(
    f"transformers.models.{name}.modeling_{name}.{function}"
    for function, names in (
        ("chunk_kimi_delta_attention", ("bailing_hybrid", "glm5_next", "kimi_linear")),
        (
            "torch_chunk_gated_delta_rule",
            ("lara_mini", "olmo_hybrid", "qwen3_5", "qwen3_5_moe", "qwen3_next", "qwen4_exp"),
        ),
    )
    for name in names
)


@patch(
    "transformers",
    replaces=(*SELECTIVE, LINEAR_ATTENTION, RNN_SCAN, BACKEND),
    since="5.23",
    default=True,
)
def token_loops() -> Iterator[None]:
    """Mamba, FalconMamba, Jamba, Zamba, RWKV, RecurrentGemma and xLSTM keep the length of the example: they loop over it."""
    wrappers = dict.fromkeys(SELECTIVE, scanned_by(selective_scan, token_loops, -1)) | {
        LINEAR_ATTENTION: scanned_by(linear_attention, token_loops, 1, "key"),
        RNN_SCAN: scanned_by(linear_recurrence, token_loops, 1),
        BACKEND: matrix_memory,
    }
    with wrapped(wrappers):
        yield


@patch("transformers", replaces=CHUNKED, since="5.23", default=True)
def chunk_loops() -> Iterator[None]:
    """The delta rule of Qwen 3.5, Kimi Linear and others loops over chunks of 64 tokens: the program would hold their number."""
    with wrapped(dict.fromkeys(CHUNKED, scanned_by(delta_rule, chunk_loops, 1, "key"))):
        yield


def scanned_by(
    scanned: Callable, owner: Patch, axis: int, name: str = "hidden_states"
) -> Callable[[Callable], Callable]:
    """A wrapper that calls *scanned*, of the patch *owner*, where the argument *name* has a symbolic size on its *axis* of tokens."""
    names = scanned.__code__.co_varnames[: scanned.__code__.co_argcount]

    def wrapper(original: Callable) -> Callable:
        @functools.wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            tokens = (dict(zip(names, args)) | kwargs)[name]
            if not isinstance(tokens.shape[axis], torch.SymInt):
                return original(*args, **kwargs)
            owner.used()
            return scanned(*args, **kwargs)

        return called

    return wrapper


def selective_scan(
    hidden_states: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    delta_bias: torch.Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    **kwargs: Any,
) -> Any:
    """Mamba's recurrence of a diagonal state over (batch, channels, tokens)."""
    dtype = hidden_states.dtype
    dt = dt if delta_bias is None else dt + delta_bias.to(dt.dtype)[..., None]
    dt = F.softplus(dt) if delta_softplus else dt
    steps = dt.permute(2, 0, 1)[..., None]
    decays = torch.exp(A * steps)
    added = steps * B.permute(2, 0, 1)[:, :, None].float() * hidden_states.permute(2, 0, 1)[..., None].float()

    def step(state: torch.Tensor, token: tuple) -> tuple[torch.Tensor, torch.Tensor]:
        decay, more, read = token
        state = decay * state + more
        return state, torch.matmul(state.to(dtype), read[..., None])[..., 0]

    start = torch.zeros_like(added[0])
    last, result = scan(step, start, (decays, added, C.permute(2, 0, 1)))
    result = result.permute(1, 2, 0)
    result = result if D is None else result + hidden_states * D[None, :, None]
    result = result if z is None else result * F.silu(z)
    return (result, last) if return_last_state else result


def linear_attention(
    time_decay: torch.Tensor,
    time_first: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    state: list[torch.Tensor] | None = None,
    return_state: bool = False,
) -> tuple[torch.Tensor, list[torch.Tensor] | None]:
    """RWKV's averages of values by keys that decay over (batch, tokens, channels), on a logarithmic scale of its own."""
    time_decay = -torch.exp(time_decay)
    zeros = torch.zeros_like(key[:, 0], dtype=torch.float32)
    start = [zeros, zeros.clone(), zeros - 1e38] if state is None else [part.clone() for part in state]

    def step(states: list[torch.Tensor], token: tuple) -> tuple[list[torch.Tensor], torch.Tensor]:
        numerator, denominator, largest = states
        key, value = token
        top = torch.maximum(largest, key + time_first)
        past, now = torch.exp(largest - top), torch.exp(key + time_first - top)
        result = (past * numerator + now * value) / (past * denominator + now)
        top = torch.maximum(largest + time_decay, key)
        past, now = torch.exp(largest + time_decay - top), torch.exp(key - top)
        return [past * numerator + now * value, past * denominator + now, top], result

    last, result = scan(step, start, (key.float().transpose(0, 1), value.transpose(0, 1)))
    is_wanted = return_state or state is not None
    return result.to(key.dtype).transpose(0, 1), list(last) if is_wanted else None


def linear_recurrence(
    self: torch.nn.Module,
    hidden_states: torch.Tensor,
    recurrent_gate: torch.Tensor,
    reset: torch.Tensor,
    recurrent_states: torch.Tensor | None,
    acc_dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor]:
    """RecurrentGemma's state, multiplied by a gate before each token is added, over (batch, tokens, channels)."""
    gates = (recurrent_gate * ~reset).to(acc_dtype).transpose(0, 1)
    tokens = hidden_states.to(acc_dtype).transpose(0, 1)
    start = (
        torch.zeros_like(tokens[0]) if recurrent_states is None else recurrent_states.to(acc_dtype).clone()
    )

    def step(state: torch.Tensor, token: tuple) -> tuple[torch.Tensor, torch.Tensor]:
        gate, more = token
        state = gate * state + more
        return state, state.clone()

    last, result = scan(step, start, (gates, tokens))
    return result.transpose(0, 1).to(hidden_states.dtype), last


def matrix_memory(forward: Callable) -> Callable:
    """xLSTM's memory, over (batch, heads, tokens, channels), in inference: its own step for each token, without its chunks of 64."""

    @functools.wraps(forward)
    def called(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        names = forward.__code__.co_varnames[1 : forward.__code__.co_argcount]
        given = dict(zip(names, args)) | kwargs
        query, key, value = (given[name] for name in ("query", "key", "value"))
        mode = given.get("mode") or self.config.mode
        if "train" in mode or "inference" not in mode or not isinstance(query.shape[2], torch.SymInt):
            return forward(self, *args, **kwargs)
        token_loops.used()
        dtype = getattr(torch, self.config.inference_state_dtype)
        batch, heads, _, width = key.shape
        sizes = (width, value.shape[-1]), (width,), (1,)
        start = [given.get(name) for name in ("c_initial", "n_initial", "m_initial")]
        start = [
            key.new_zeros((batch, heads, *size), dtype=dtype) if state is None else state.to(dtype).clone()
            for state, size in zip(start, sizes)
        ]

        def step(states: list[torch.Tensor], token: tuple) -> tuple[list[torch.Tensor], torch.Tensor]:
            query, key, value, igate, fgate = token
            cell, norm, largest = states
            result, states = self.step_kernel_fn(
                query=query, key=key, value=value, igate=igate, fgate=fgate, cstate=cell, nstate=norm,
                mstate=largest, eps=self.config.eps, dtype_state=dtype,
            )  # fmt: skip
            return list(states), result

        gates = (given[name][..., None] for name in ("igate", "fgate"))
        tokens = tuple(x.movedim(2, 0) for x in (query, key, value, *gates))
        last, result = scan(step, start, tokens)
        return result.movedim(0, 2), tuple(last)

    return called


def delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    chunk_size: int = 64,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The gated delta rule over (batch, tokens, heads, channels): token by token, as transformers' functions for one chunk do.

    *g* is the logarithm of the decay, one number a head, or one a channel of the keys.
    """
    dtype, heads = query.dtype, value.shape[2]
    query, key = (x.repeat_interleave(heads // x.shape[2], dim=2) for x in (query, key))
    query, key, value, g, beta = (x.float().transpose(0, 1) for x in (query, key, value, g, beta))
    if use_qk_l2norm_in_kernel:
        query, key = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (query, key))
    query = query * query.shape[-1] ** -0.5
    decay = g.exp()[..., None] if g.dim() == 4 else g.exp()[..., None, None]

    def step(state: torch.Tensor, token: tuple) -> tuple[torch.Tensor, torch.Tensor]:
        query, key, value, decay, rate = token
        state = state * decay
        known = (state * key[..., None]).sum(-2)
        state = state + key[..., None] * ((value - known) * rate[..., None])[..., None, :]
        return state, (state * query[..., None]).sum(-2)

    shape = (*key.shape[1:], value.shape[-1])
    start = value.new_zeros(shape) if initial_state is None else initial_state.to(value).clone()
    last, result = scan(step, start, (query, key, value, decay, beta))
    return result.transpose(0, 1).to(dtype), last if output_final_state else None
