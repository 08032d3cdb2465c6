"""Types and shapes, checked at each call of a function of gnlib."""

import functools
import inspect
import random
import typing

import jaxtyping
import torch

# beartype draws which item of a list it looks at; not from Python's own generator, which the trial of a module watches.
random.getrandbits, own = random.Random(0).getrandbits, random.getrandbits
import beartype._check.code.codemain  # noqa: E402

random.getrandbits = own
CHECK = functools.partial(beartype.beartype, conf=beartype.BeartypeConf(is_pep484_tower=True))  # an int is a float
JAXTYPED = functools.partial(jaxtyping.jaxtyped, typechecker=CHECK)
SIZES = jaxtyping.jaxtyped("context")  # in which an axis has one size


def install():
    """Have jaxtyping's import hook decorate what it imports with :func:`checked`. Nothing may import gnlib before."""
    jaxtyping.jaxtyped = lambda typechecker: checked
    Array = type(jaxtyping.AbstractArray)
    Array.__instancecheck__ = unseen(Array.__instancecheck__)
    jaxtyping.install_import_hook("gnlib", None)


def checked(function):
    """Check what `jaxtyped` does at a tenth of the cost: arguments once, and sizes only where the hints have shapes."""
    try:
        hints = {} if inspect.isclass(function) else typing.get_type_hints(function)
    except NameError:  # a class that is not there yet
        hints = {}
    if not hints:
        return JAXTYPED(function)
    strict, shapes = CHECK(function), any(map(has_shape, hints.values()))

    @functools.wraps(function)
    def call(*args, **kwargs):
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        if not shapes:
            return strict(*args, **kwargs)
        with SIZES:
            return strict(*args, **kwargs)

    return call


def unseen(check):
    """Hide what a check reads of a tensor from those who watch torch: that took as long as all the rest."""

    def call(hint, tensor):
        with torch._C.DisableTorchFunction():
            return check(hint, tensor)

    return call


def has_shape(hint):
    a_shape = inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)
    return a_shape or any(map(has_shape, typing.get_args(hint)))
