#include <catch2/catch.hpp>

#include "core/ops/gemm.h"
#include "tests/cuda_on_host/ops/compare.h"

namespace moetwin::cuda_on_host {

TEST_CASE("products with every tail, fused or not") {
  Inputs in(1);
  each_real([&](DType d) {
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{5, 24, 17}, {33, 7, 64}, {1, 1, 1}, {4, 8, 0}})
      for (const bool ta : {false, true})
        for (const bool tb : {false, true})
          for (DType out : {d, DType::f32}) {
            const Tensor a = in.real(ta ? Shape{k, m} : Shape{m, k}, d);
            const Tensor b = in.real(tb ? Shape{n, k} : Shape{k, n}, d);
            GemmAttr attr;
            attr.transpose_a = ta;
            attr.transpose_b = tb;
            compare(gemm(a, b, {}, in.output({m, n}, out), {}, attr), {8, 8});
            attr.accumulate = true;
            compare(gemm(a, b, {}, in.real({m, n}, out), {}, attr), {8, 8});
            attr.accumulate = false;
            for (Epilogue e : {Epilogue::none, Epilogue::gelu, Epilogue::gelu_tanh})
              for (DType bias : {d, DType::f32})
                for (const bool pre : {false, true}) {
                  attr.epilogue = e;
                  compare(gemm(a, b, in.real({n}, bias), in.output({m, n}, out),
                               pre ? in.output({m, n}, d) : Tensor{}, attr),
                          {8, 8});
                }
          }
  });
}

TEST_CASE("groups of rows of any size, empty ones among them") {
  Inputs in(2);
  each_real([&](DType d) {
    for (const auto& rows : {std::vector<int64_t>{5, 0, 17, 1}, {0, 0, 0, 0}, {0, 0, 0, 40}})
      for (DType out : {d, DType::f32}) {
        const int64_t n = 43, k = 24, m = 10, g = 4;
        const HostSizes sizes = std::make_shared<const std::vector<int64_t>>(rows);
        const Tensor a = in.real({n, k}, d);
        for (const bool tb : {false, true})
          for (Epilogue e : {Epilogue::none, Epilogue::gelu, Epilogue::gelu_tanh}) {
            GroupedGemmAttr attr;
            attr.transpose_b = tb;
            attr.epilogue = e;
            const Tensor b = in.real(tb ? Shape{g, m, k} : Shape{g, k, m}, d);
            compare(grouped_gemm(a, b, in.real({g, m}, d), in.output({n, m}, out),
                                 in.output({n, m}, d), attr, sizes),
                    {8, 8});
            compare(grouped_gemm(a, b, {}, in.output({n, m}, out), {}, attr, sizes), {8, 8});
          }
        const Tensor dc = in.real({n, m}, d);
        compare(grouped_gemm_weight_grad(a, dc, in.real({g, k, m}, out), sizes), {8, 8});
        compare(grouped_bias_grad(dc, in.real({g, m}, out), sizes), {8, 8});
      }
  });
}

TEST_CASE("bias gradients over more rows than one part has") {
  Inputs in(3);
  each_real([&](DType d) {
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{700, 16}, {3, 301}, {0, 5}})
      compare(bias_grad(in.real({m, n}, d), in.real({n}, DType::f32)), {16, 16});
  });
}

}  // namespace moetwin::cuda_on_host
