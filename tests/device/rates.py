"""What measurements of `moetwin calibrate --raw` say of kernels beside the chip's limits."""

# What is asked of kernels: shares of what the same chip does otherwise.
WANTED = {"permute_of_copy": 0.8, "adamw_of_copy": 0.8, "grouped_of_gemm": 0.8}


def best(kernels, name, key):
    return max((k[key] for k in kernels if k["what"].startswith(name)), default=0.0)


def summary(measurements):
    """Rates by kernel, shares of the published peak and of the bandwidth measured here, and which are below what is
    wanted. Bytes are read and written; FLOP are those of the products alone."""
    kernels = measurements["kernels"]
    dtype = measurements["dtype"]
    peak = measurements["peak_flop_per_second"]
    copy = best(kernels, "copy", "bytes_per_second")
    gemm = best(kernels, f"gemm {dtype}", "flop_per_second")
    rows = []
    for k in kernels:
        row = {"what": k["what"], "seconds": k["seconds"], "flop_per_second": k["flop_per_second"],
               "bytes_per_second": k["bytes_per_second"]}
        if peak:
            row["share_of_peak"] = k["flop_per_second"] / peak
        if copy:
            row["share_of_copy_bandwidth"] = k["bytes_per_second"] / copy
        rows.append(row)
    shares = {}
    if copy:
        shares["permute_of_copy"] = best(kernels, "permute ", "bytes_per_second") / copy
        shares["adamw_of_copy"] = best(kernels, "adamw", "bytes_per_second") / copy
    if gemm:
        shares["grouped_of_gemm"] = best(kernels, "grouped gemm", "flop_per_second") / gemm
    return {"device": measurements["device"], "peak_flop_per_second": peak, "gemm_flop_per_second": gemm,
            "copy_bytes_per_second": copy, "launch_seconds": measurements["launch_seconds"], "shares": shares,
            "below_wanted": sorted(name for name, share in shares.items() if share < WANTED[name]), "kernels": rows}
