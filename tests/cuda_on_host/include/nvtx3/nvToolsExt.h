#pragma once
// The part of NVTX that backends/cuda uses: without a tool that listens, nothing happens.

inline int nvtxRangePushA(const char*) { return 0; }
inline int nvtxRangePop() { return 0; }
