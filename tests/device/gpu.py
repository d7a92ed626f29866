"""What this machine has of GPUs and of CUDA's libraries."""
import ctypes
import glob
import os
import sys

# Names of libraries that the carried programs need and that are not carried: they are CUDA's and large.
LIBRARIES = ["libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libnccl.so.2"]


def count():
    """(number of GPUs that can be used, why there is none)"""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return 0, f"no NVIDIA driver: {error}"
    if code := driver.cuInit(0):
        return 0, f"the driver's cuInit gives error {code}"
    number = ctypes.c_int(0)
    if code := driver.cuDeviceGetCount(ctypes.byref(number)):
        return 0, f"the driver's cuDeviceGetCount gives error {code}"
    if number.value == 0:
        hidden = " (CUDA_VISIBLE_DEVICES hides them)" if "CUDA_VISIBLE_DEVICES" in os.environ else ""
        return 0, f"the driver shows no GPU{hidden}"
    return number.value, ""


def folders():
    """Where CUDA's libraries may lie: toolkits, and what Python packages bring."""
    places = ["/usr/local/cuda/lib64", *sorted(glob.glob("/usr/local/cuda-*/lib64"))]
    bases = list(sys.path) + glob.glob("/opt/*/.venv/lib/python3*/site-packages") + \
        glob.glob("/usr/lib/python3*/site-packages")
    for base in bases:
        places += sorted(glob.glob(os.path.join(base, "nvidia", "*", "lib")))
    return [place for place in dict.fromkeys(places) if os.path.isdir(place)]


def library_path():
    """LD_LIBRARY_PATH that finds LIBRARIES, and the names that are nowhere."""
    path, missing = [], []
    for name in LIBRARIES:
        found = next((f for f in folders() if os.path.exists(os.path.join(f, name))), None)
        if found:
            path.append(found)
            continue
        try:
            ctypes.CDLL(name)
        except OSError:
            missing.append(name)
    known = os.environ.get("LD_LIBRARY_PATH", "")
    return ":".join(dict.fromkeys([*path, *filter(None, known.split(":"))])), missing
