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
WITHIN = {}  # checks of functions within others, by their code


def install():
    """Have jaxtyping's import hook decorate what it imports with :func:`checked`. Nothing may import gnlib before."""
    jaxtyping.jaxtyped = lambda typechecker: checked
    Array = type(jaxtyping.AbstractArray)
    Array.__instancecheck__ = unseen(Array.__instancecheck__)
    jaxtyping.install_import_hook("gnlib", None)


def checked(function):
    """Check what `jaxtyped` does at a tenth of the cost: arguments once, and sizes only where the hints have shapes."""
    if inspect.isclass(function):
        return JAXTYPED(function)
    if not function.__annotations__:
        return function
    try:
        strict, shapes = strict_within(function) if "<locals>" in function.__qualname__ else strictly(function)
    except NameError:  # a class that is not there yet
        return JAXTYPED(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        if not shapes:
            return strict(*args, **kwargs)
        with SIZES:
            return strict(*args, **kwargs)

    return call


def strictly(function):
    """Return a function with its arguments and its result checked, and whether its hints have shapes."""
    hints = typing.get_type_hints(function)
    return CHECK(function), any(map(has_shape, hints.values()))


def strict_within(function):
    """Do so for a function within another, which is there anew at each call of that one: the check is made once."""
    if function.__code__ not in WITHIN:

        @functools.wraps(function)
        def call(*args, **kwargs):
            return kwargs.pop("_function")(*args, **kwargs)

        call.__annotations__ = typing.get_type_hints(function)
        WITHIN[function.__code__] = strictly(call)
    strict, shapes = WITHIN[function.__code__]
    return functools.partial(strict, _function=function), shapes


def unseen(check):
    """Hide what a check reads of a tensor from those who watch torch: that took as long as all the rest."""

    def call(hint, tensor):
        with torch._C.DisableTorchFunction():
            return check(hint, tensor)

    return call


def has_shape(hint):
    a_shape = inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)
    return a_shape or any(map(has_shape, typing.get_args(hint)))
