"""The same Gram matrix by neural-tangents, with structured derivatives, compiled: `python ... FILE`.

It runs in an environment of its own, since the versions of jax that it takes need an old NumPy. Two commands make it:

    python3.11 -m venv nt-venv
    nt-venv/bin/pip install neural-tangents==0.6.5 jax==0.4.20 jaxlib==0.4.20 tf2jax==0.3.6 'numpy<2' 'scipy<1.13'

and `NEURAL_TANGENTS_PYTHON=$PWD/nt-venv/bin/python make bench` lets the benchmark find it. FILE is an archive of NumPy:
the name of a network below, samples, and parameters in the order of torch. The Gram matrix is left beside it; printed
are the seconds that a call takes once compiled, the least of three where that is not too long, and the GiB beyond what
was there before.
"""

import json
import sys
from pathlib import Path
from time import perf_counter

import jax
import neural_tangents
import numpy as np
from jax import lax
from jax import numpy as jnp

IMAGES = ("NCHW", "OIHW", "NCHW")


def mlp(parameters, x):
    *hidden, last = zip(parameters[::2], parameters[1::2], strict=True)
    for weight, bias in hidden:
        x = relu(x @ weight.T + bias)
    return x @ last[0].T + last[1]


def cnn(parameters, x):
    *hidden, last = zip(parameters[::2], parameters[1::2], strict=True)
    for weight, bias in hidden:
        x = relu(convolution(x, weight, 2) + bias[:, None, None])
    return x.mean((2, 3)) @ last[0].T + last[1]


def resnet(parameters, x):
    first, *convolutions, weight, bias = parameters
    x = relu(convolution(x, first))
    for one, two in zip(convolutions[::2], convolutions[1::2], strict=True):
        out, channels = one.shape[:2]
        stride, new = (1, 0) if out == channels else (2, out - channels)
        y = convolution(relu(convolution(x, one, stride)), two)
        skip = jnp.pad(x[:, :, ::stride, ::stride], ((0, 0), (new // 2, new - new // 2), (0, 0), (0, 0)))
        x = relu(y + skip)
    return x.mean((2, 3)) @ weight.T + bias


def relu(x):
    return jnp.maximum(x, 0)


def convolution(x, weight, stride=1):
    return lax.conv_general_dilated(x, weight, (stride, stride), ((1, 1), (1, 1)), dimension_numbers=IMAGES)


def resident(key):
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 2**20 for line in lines if line.startswith(key)), None)


def timed(work):
    start = perf_counter()
    result = work().block_until_ready()
    return perf_counter() - start, result


def main(file):
    jax.config.update("jax_enable_x64", True)
    with np.load(file) as held:
        function, x = globals()[str(held["network"])], jnp.asarray(held["x"])
        parameters = [jnp.asarray(held[f"p{i}"]) for i in range(len(held) - 2)]
    how = neural_tangents.NtkImplementation.STRUCTURED_DERIVATIVES
    kernel = neural_tangents.empirical_ntk_fn(function, trace_axes=(), vmap_axes=0, implementation=how)
    kernel = jax.jit(kernel)
    before = resident("VmRSS")
    kernel(x, None, parameters).block_until_ready()
    seconds, ntk = timed(lambda: kernel(x, None, parameters))
    seconds = min([seconds, *(timed(lambda: kernel(x, None, parameters))[0] for _ in range(2 * (seconds < 10)))])
    memory = None if before is None else resident("VmHWM") - before
    n, _, k, _ = ntk.shape
    np.save(file.with_suffix(".npy"), np.asarray(ntk).transpose(0, 2, 1, 3).reshape(n * k, n * k) / n)
    print(json.dumps({"seconds": seconds, "memory": memory}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
