"""What gives another value each time that it is asked: iterators that a model holds, random generators that are not torch's."""

from __future__ import annotations

import functools
import gc
import itertools
import operator
import pickle
import random
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from experimental_experiment.torch_interpreter.memories import (
    MANY,
    attributes_of,
    container_of,
    contents_of,
    count_of,
    is_object,
    items_of,
)

State = tuple[Any, list[Any]]
"""Something that can be compared, and objects that are the same until the next value is given."""

DEPTH = 8
"""So many iterators in one another are looked into: ``islice(chain(map(f, zip(a, b))), 3)``."""

CYCLES_TELL = sys.version_info < (3, 14)
"""Whether ``itertools.cycle`` can be copied: it tells its place once it has all of its values."""


def givers_in(place: str, value: Any, depth: int = 2) -> Iterator[tuple[str, Any]]:
    """The generators and the iterators that a value is, or has as its entries or its arguments, with their places."""
    if gives_values(value):
        yield place, value
    elif isinstance(value, functools.partial):
        for argument in (value.func, *value.args, *value.keywords.values()):
            yield from givers_in(place, argument, 0)
    elif depth and (container_of(type(value)) or isinstance(value, tuple)) and count_of(value) <= MANY:
        entries = contents_of(value)
        for key, item in entries.items() if isinstance(entries, dict) else enumerate(entries):
            yield from givers_in(f"{place}[{key!r}]", item, depth - 1)


def gives_values(value: Any) -> bool:
    """Whether a value is a random generator that is no torch.Generator, or an iterator of Python's."""
    if isinstance(value, (random.Random, np.random.Generator, np.random.RandomState)):
        return not isinstance(value, random.SystemRandom)  # which has no state
    return isinstance(value, Iterator) and type(value).__module__ in ("builtins", "itertools")


def state_of(generator: Any) -> State:
    """What a generator gives next."""
    if isinstance(generator, Iterator):
        return state_of_iterator(generator, DEPTH)
    if isinstance(generator, np.random.Generator):
        return pickle.dumps(generator.bit_generator.state), []
    if hasattr(generator, "get_state"):
        return pickle.dumps(generator.get_state(legacy=False)), []
    return generator.getstate(), []


def state_of_iterator(iterator: Any, depth: int) -> State:
    """What an iterator gives next: ``itertools.count`` tells its number, iterators of lists how many are left, others what they are made of.

    Source of semantics: what CPython's garbage collector visits in them. It asks none of them for a value.
    """
    if isinstance(iterator, types.GeneratorType):
        frame = iterator.gi_frame
        return (frame.f_lasti, [*frame.f_locals.values()]) if frame else (None, [])
    if is_object(type(iterator)):  # of a class of the model's
        return None, [*items_of(attributes_of(iterator))]
    told: list[Any] = [operator.length_hint(iterator)]
    if isinstance(iterator, itertools.count):
        told.append(repr(iterator))
    held: list[Any] = []
    for part in parts_of(iterator):
        if depth and (isinstance(part, Iterator) or type(part).__module__ == "itertools"):
            state, objects = state_of_iterator(part, depth - 1)
            told.append(state)
            held += objects
        else:
            held.append(part)
    return told, held


def parts_of(iterator: Any) -> list[Any]:
    """What an iterator of Python's is made of, and the entries of the tuples among that; of a cycle that has all of its values where it is in them."""
    if isinstance(iterator, itertools.cycle) and CYCLES_TELL:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on
            _, (inner,), (saved, *_) = iterator.__reduce__()
        return [inner, *saved]
    found = []
    for part in gc.get_referents(iterator):
        # of a tuple, too: those of a zip_longest have places without an object, which Python must not read
        found += gc.get_referents(part) if type(part) is tuple and len(part) <= MANY else [part]
    return found
