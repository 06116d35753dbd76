"""What the tools that time kernels beside PyTorch share: PTX, launches, and the time of many."""

import ctypes
import statistics
import sys

import torch

MAX_DYNAMIC_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_...

driver = ctypes.CDLL("libcuda.so.1")


def check(code, doing):
    if code:
        sys.exit(f"{doing}: CUDA error {code}")


def functions(path, shared_bytes):
    """Of a PTX file the kernels named in `shared_bytes`, each with so much shared memory."""
    torch.zeros(1, device="cuda")  # The context that modules are loaded into.
    module = ctypes.c_void_p()
    with open(path, "rb") as file:
        check(driver.cuModuleLoadData(ctypes.byref(module), file.read() + b"\0"), f"loading {path}")
    found = {}
    for name, shared in shared_bytes.items():
        function = found[name] = ctypes.c_void_p()
        check(driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()), name)
        check(driver.cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED_BYTES, shared), name)
    return found


def launcher(function, grid, threads, shared, arguments, keep=()):
    """A function that launches a kernel; `keep` holds what its arguments point to."""
    buffer = ctypes.create_string_buffer(arguments, len(arguments))
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(buffer))

    def launch(keep=(buffer, keep)):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        code = driver.cuLaunchKernel(function, *grid, threads, 1, 1, shared, stream, parameters, None)
        check(code, "launching")

    return launch


def milliseconds(launch, batches=12, launches=10):
    """The median of batches between two events, behind a kernel that only waits, for one launch."""
    times = []
    for _ in range(batches):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000)
        start.record()
        for _ in range(launches):
            launch()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / launches)
    return statistics.median(times)
