"""Is there a GPU to compute on? One question, asked once, answered with a reason."""

import functools


@functools.cache
def status() -> tuple[bool, str]:
    """Whether this process can compute on a GPU, and in one line why not ("" when it can).

    Only a computation tells: CuPy imports without a driver, and a driver can be too old for the
    card. So a tiny one runs here, once, and whatever it raises becomes the reason.
    """
    reason = " ".join(_trouble().split())
    return not reason, reason


def _trouble() -> str:
    try:
        import cupy
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            return 'CuPy is not installed: pip install "tinyfm[cuda13]"'
        return f"CuPy cannot be imported: {error}"
    try:
        if cupy.cuda.runtime.driverGetVersion() == 0:
            return "CuPy found no usable GPU: no NVIDIA driver"
        if cupy.cuda.runtime.getDeviceCount() == 0:
            return "the NVIDIA driver reports 0 devices (is CUDA_VISIBLE_DEVICES set?)"
    except Exception as error:
        return f"CuPy found no usable GPU: {error}"
    try:
        # Compiles a kernel, calls cuBLAS and reads back: the three things that everything needs.
        ones = cupy.ones((2, 2), dtype="float32")
        total = (ones @ ones + ones).sum().item()
    except Exception as error:
        return f"the GPU failed a first computation: {error}"
    return "" if total == 12 else f"the GPU failed a first computation: {total} instead of 12"
