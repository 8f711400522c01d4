"""`Generator`: prefill, steps of one token, and the loop around them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy as np
import onnx
import onnxruntime

from experimental_experiment.decoding.cache import Cache
from experimental_experiment.decoding.interface import DecodingError, interface_of
from experimental_experiment.decoding.sampling import Sampling, most_likely, whole_number
from experimental_experiment.reading import read
from experimental_experiment.refusals import FAILURES, UNLOADED


class Generator:
    """A decoder in onnxruntime, with its cache in buffers that are bound as inputs and outputs.

    Args:
        model: a file, or a ModelProto with its weights: a decoder whose inputs and outputs have the roles of `Interface`, as
            `to_onnx` writes them for a model of transformers that is given a ``DynamicCache``, with keys and values, states, or both.
        max_length: the largest number of tokens of a row, prompt and padding included: the buffers have room for them.
        threads: how many one operator may use; None leaves it to onnxruntime.

    Attributes:
        interface: the roles of the inputs and outputs.
        session: the session of onnxruntime.

    Raises DecodingError when there is no such model, or it is no decoder with a cache.
    """

    def __init__(
        self, model: onnx.ModelProto | str | os.PathLike, max_length: int, threads: int | None = None
    ):
        if whole_number(max_length, "max_length") < 1:
            raise DecodingError(f"max_length is at least 1, not {max_length}")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        # a prompt takes 0.99 of the time and 0.56 of the memory, measured with onnxruntime 1.31: see docs/benchmarks.md
        options.enable_mem_reuse = False
        if threads is not None:
            options.intra_op_num_threads = whole_number(threads, "threads")
        is_proto = isinstance(model, onnx.ModelProto)
        if not is_proto and not isinstance(model, (str, os.PathLike)):
            raise TypeError(
                f"a model is an onnx.ModelProto or the path of a file, not {type(model).__name__}"
            )
        try:
            graph = model if is_proto else read(model)
        except (OSError, ValueError) as error:
            raise DecodingError(f"there is no model: {error}") from error
        source = model.SerializeToString() if is_proto else os.fspath(model)
        try:
            self.session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except UNLOADED as error:
            raise DecodingError(f"onnxruntime refuses the model: {error}") from error
        self.interface = interface_of(self.session, graph)
        self.max_length = max_length
        self.binding = self.session.io_binding()
        self.cache: Cache | None = None
        self.mask = np.empty((0, 0), np.int64)
        self.seen = np.empty(0, np.int64)  # tokens of each row without padding: the position of the next one

    @property
    def length(self) -> int:
        """Tokens that are in the cache, padding included."""
        return 0 if self.cache is None else self.cache.length

    def prefill(self, tokens: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Begin anew with these prompts.

        A model that takes one token a row, as all do that hold states, is run once for each token of the longest prompt, from states that
        are zeros; those of a row stay so as long as it has not begun.

        Args:
            tokens: integers [batch, sequence].
            mask: 1 for a token, 0 for padding on the left, [batch, sequence]; None for no padding.

        Returns the logits that follow the last tokens, [batch, vocabulary].
        Raises DecodingError when the prompts are too long, the mask does not fit or the model does not read it.
        """
        tokens = integers(tokens, "tokens")
        batch, count = tokens.shape
        mask = np.ones_like(tokens) if mask is None else integers(mask, "mask")
        self.check_mask(tokens, mask)
        if self.cache is None or self.cache.batch != batch:
            self.cache = Cache(self.interface, batch, self.max_length)
        self.cache.length = 0
        self.cache.forget(np.ones(batch, bool))
        self.seen = np.zeros(batch, np.int64)
        self.mask = np.ones((batch, self.max_length), np.int64)
        if count <= self.max_length:
            self.mask[:, :count] = mask
        tokens = np.where(mask, tokens, 0)  # whatever stands for padding may be no token of the model
        try:
            return self.run(tokens)
        except DecodingError:
            self.cache.length = 0  # a part of the prompts is none of them
            raise

    def check_mask(self, tokens: np.ndarray, mask: np.ndarray) -> None:
        """Raise DecodingError for a mask that is not one of left padding, or that the model does not read."""
        if mask.shape != tokens.shape:
            raise DecodingError(f"the mask is {list(mask.shape)}, the tokens are {list(tokens.shape)}")
        if not np.isin(mask, (0, 1)).all() or (np.diff(mask, axis=1) < 0).any() or not mask[:, -1].all():
            raise DecodingError("the mask has zeros on the left, for padding, then ones up to the last token")
        if not mask.all():
            if not self.interface.reads_padding:
                raise DecodingError("the model reads no mask of its keys: give it prompts of one length")
            if self.interface.cache and self.interface.positions is None:
                raise DecodingError(
                    "the model takes no positions, and counts padding: give it prompts of one length"
                )

    def step(self, tokens: np.ndarray) -> np.ndarray:
        """Append one token to each row; the logits that follow, [batch, vocabulary].

        Args:
            tokens: integers [batch].

        Raises DecodingError before `prefill`, when the rows are full, or their number is another one.
        """
        if self.cache is None or not self.cache.length:
            raise DecodingError("there is no prompt: prefill comes before the first step")
        tokens = np.asarray(tokens)
        if tokens.shape != (self.cache.batch,):
            raise DecodingError(
                f"one token for each of the {self.cache.batch} rows, not {list(tokens.shape)}"
            )
        return self.run(integers(tokens[:, None], "tokens"))

    def run(self, tokens: np.ndarray) -> np.ndarray:
        """Append int64[batch, sequence] tokens; the logits that follow the last one.

        Raises DecodingError for a negative token that is no padding, too many tokens, and what onnxruntime refuses: a token beyond the
        vocabulary, a position beyond the model's table, a number of rows or of tokens that the model does not take.
        """
        count = tokens.shape[1]
        total = self.length + count
        if total > self.max_length:
            raise DecodingError(f"{total} tokens are more than max_length={self.max_length}")
        least = tokens[self.mask[:, self.length : total].astype(bool)].min()
        if least < 0:
            raise DecodingError(f"a token is at least 0, not {least}")
        for piece in np.split(tokens, count, axis=1) if self.interface.takes_one else [tokens]:
            logits = self.append(piece)
        return logits

    def append(self, tokens: np.ndarray) -> np.ndarray:
        """What `run` does with tokens that the model takes in one run. Raises DecodingError for what onnxruntime refuses."""
        cache, names = self.cache, self.interface
        batch, count = tokens.shape
        total = self.length + count
        feeds = {names.tokens: np.ascontiguousarray(tokens)}
        if names.mask is not None:
            feeds[names.mask] = np.ascontiguousarray(self.mask[:, :total])
        added = self.mask[:, self.length : total]
        if names.positions is not None:
            feeds[names.positions] = np.maximum(self.seen[:, None] + np.cumsum(added, axis=1) - 1, 0)
        rows = 1 if names.gives_last else count
        logits = np.empty((batch, rows, names.vocabulary), names.dtype)
        for name, array in feeds.items():
            self.binding.bind_input(name, "cpu", 0, np.int64, array.shape, array.ctypes.data)
        self.binding.bind_output(names.logits, "cpu", 0, names.dtype, logits.shape, logits.ctypes.data)
        cache.bind(self.binding, count)
        try:
            self.session.run_with_iobinding(self.binding)
        except (*FAILURES, RuntimeError) as error:  # as it says it of bound inputs
            raise DecodingError(
                f"the model does not take {batch} rows of {count} tokens after {self.length}, or one of these tokens: {error}"
            ) from error
        cache.advance(count)
        if not added.all():
            cache.forget(added[:, -1] == 0)  # rows that have not begun
        self.seen += added.sum(axis=1)
        return logits[:, -1]

    def generate(
        self,
        tokens: np.ndarray,
        mask: np.ndarray | None = None,
        *,
        max_new_tokens: int | None = None,
        stop: Iterable[int] = (),
        sampling: Sampling | None = None,
        padding: int = 0,
    ) -> np.ndarray:
        """Continue these prompts.

        Args:
            tokens: integers [batch, sequence].
            mask: 1 for a token, 0 for padding on the left, [batch, sequence]; None for no padding. See `left_padded`.
            max_new_tokens: how many at most; None for as many as `max_length` allows.
            stop: tokens that end their row, and are part of it.
            sampling: how tokens are drawn; None for the most likely one.
            padding: what follows the end of a row that ends before the others, any number.

        Returns int64[batch, sequence + new tokens], the prompts included.
        Raises DecodingError as `prefill` does, when prompts and new tokens together are too long, and when logits are NaN.
        """
        if max_new_tokens is not None and whole_number(max_new_tokens, "max_new_tokens") < 0:
            raise DecodingError(f"max_new_tokens is at least 0, not {max_new_tokens}")
        if not isinstance(stop, Iterable):
            raise TypeError(f"stop is a list of tokens, not {stop!r}")
        if not isinstance(sampling, Sampling | None):
            raise TypeError(f"sampling is a Sampling, not {sampling!r}")
        tokens = integers(tokens, "tokens")
        batch, count = tokens.shape
        room = self.max_length - count
        wanted = room if max_new_tokens is None else max_new_tokens
        if wanted < 0 or wanted > room:
            raise DecodingError(
                f"{count} tokens of the prompts and {max(wanted, 0)} new ones do not fit in max_length={self.max_length}"
            )
        draw = np.random.default_rng(None if sampling is None else sampling.seed)
        stop = np.array([whole_number(token, "a token of stop") for token in stop], np.int64)
        padding = whole_number(padding, "padding")
        running, rows = np.ones(batch, bool), [tokens]
        logits = self.prefill(tokens, mask) if wanted else None
        for turn in range(wanted):
            chosen = most_likely(logits) if sampling is None else sampling.draw(logits, draw)
            chosen = np.where(running, chosen, padding)
            rows.append(chosen[:, None])
            running &= ~np.isin(chosen, stop)
            if not running.any() or turn == wanted - 1:
                break
            logits = self.step(np.where(running, chosen, 0))
        return np.concatenate(rows, axis=1)


def integers(values: np.ndarray, name: str) -> np.ndarray:
    """int64[batch, sequence], at least one of each. Raises DecodingError for anything else."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DecodingError(f"{name} are rows of one length: left_padded fills those of prompts") from error
    if array.ndim != 2 or array.dtype.kind not in "iub" or not array.size:
        raise DecodingError(f"{name} are integers [batch, sequence], not {array.dtype}{list(array.shape)}")
    return np.ascontiguousarray(array, np.int64)


def left_padded(prompts: Sequence[Sequence[int]], padding: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Prompts of any lengths as int64[batch, longest] tokens, padded on the left, and their mask.

    Raises DecodingError when one is empty, or not of integers, or *prompts* are no list.
    """
    if not isinstance(prompts, Iterable):
        raise DecodingError(f"prompts are a list of lists of integers, not {prompts!r}")
    arrays = [np.asarray(prompt) for prompt in prompts]
    for array in arrays:
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iub"):
            raise DecodingError(f"a prompt is a list of integers, not {array.dtype}{list(array.shape)}")
    if not arrays or not all(array.size for array in arrays):
        raise DecodingError("each prompt has at least one token")
    longest = max(len(array) for array in arrays)
    tokens = np.full((len(arrays), longest), whole_number(padding, "padding"), np.int64)
    mask = np.zeros_like(tokens)
    for row, prompt in enumerate(arrays):
        tokens[row, longest - len(prompt) :] = prompt
        mask[row, longest - len(prompt) :] = 1
    return tokens, mask
