#include <catch2/catch.hpp>

#include "core/ops/activation.h"
#include "core/ops/elementwise.h"
#include "core/ops/optimizer.h"
#include "tests/cuda_on_host/ops/compare.h"

namespace moetwin::cuda_on_host {

TEST_CASE("sums, multiples and casts of any length and address") {
  Inputs in(1);
  each_real([&](DType x_type) {
    for (int64_t n : {1, 8, 61, 4099}) {
      INFO("n " << n);
      const Tensor x = in.real({n}, x_type);
      compare(add(x, in.real({n}, x_type), in.output({n}, x_type)), {2, 0});
      compare(add(Inputs::shifted(x, 1), x, in.output({n}, x_type)), {2, 0});
      const Tensor both = in.real({n}, x_type);
      compare(add(x, both, both), {2, 0});  // in place
      each_real([&](DType y_type) {
        compare(cast(x, in.output({n}, y_type)), {0, 0});
        compare(scale(x, in.output({n}, y_type), {-1.7}), {2, 0});
        compare(scaled_add(x, in.real({n}, y_type), {0.3}), {2, 1});
      });
      compare(copy(x, in.output({n}, x_type)));
      compare(fill(in.output({n}, x_type), {0.1}), {0, 0});
      compare(fill(in.output({n}, x_type), {0}), {0, 0});
    }
  });
  compare(fill(in.output({19}, DType::i32), {-1}));
  compare(fill(in.output({19}, DType::i64), {3}));
  compare(copy(in.whole({19}, DType::i64, -5, 5), in.output({19}, DType::i64)));
  compare(add(in.real({0}, DType::f32), in.real({0}, DType::f32), in.output({0}, DType::f32)));
}

TEST_CASE("parts are summed in ascending order") {
  Inputs in(2);
  each_real([&](DType x_type) {
    each_real([&](DType y_type) {
      for (int64_t width : {16, 13})
        for (int64_t parts : {1, 3})
          compare(sum_parts(in.real({parts * 5, width}, x_type), in.output({5, width}, y_type),
                            {parts}),
                  {2, 0});
    });
  });
}

TEST_CASE("draws depend on the global index alone") {
  Inputs in(3);
  InitAttr init;
  init.key = philox_key(11, Purpose::init, 3, 0);
  init.global[0] = 4, init.global[1] = 50, init.global[2] = 37;
  init.offset[0] = 1, init.offset[1] = 20, init.offset[2] = 5;
  init.local[0] = 2, init.local[1] = 17, init.local[2] = 31;
  each_real([&](DType d) {
    compare(init_normal(in.output({2, 17, 31}, d), init), {0, 0});  // bit for bit
    for (int64_t offset : {0, 3, 1000001}) {
      DropoutAttr drop;
      drop.key = philox_key(11, Purpose::dropout, 1, 2);
      drop.p = 0.3;
      drop.element_offset = offset;
      const Tensor x = in.real({7, 33}, d);
      compare(dropout(x, in.output({7, 33}, d), drop), {2, 0});
      compare(dropout(x, x, drop), {2, 0});
    }
  });
}

TEST_CASE("activations and their gradients") {
  Inputs in(4);
  each_real([&](DType d) {
    for (const bool tanh_form : {false, true})
      for (int64_t width : {64, 7}) {
        const Tensor x = in.real({9, width}, d, -6, 6), dy = in.real({9, width}, d);
        compare(gelu(x, in.output({9, width}, d), {tanh_form}), {16, 4});
        compare(gelu_backward(x, dy, in.output({9, width}, d), {tanh_form}), {16, 64});
        compare(gelu_backward(x, dy, dy, {tanh_form}), {16, 64});
      }
    for (int64_t f : {32, 5}) {
      const Tensor x = in.real({9, 2 * f}, d, -6, 6), dy = in.real({9, f}, d);
      compare(swiglu(x, in.output({9, f}, d)), {16, 4});
      compare(swiglu_backward(x, dy, in.output({9, 2 * f}, d)), {16, 8});
    }
    // A host row count leaves the rest alone.
    OpCall some = gelu(in.real({9, 16}, d), in.output({9, 16}, d), {});
    some.sizes = std::make_shared<const std::vector<int64_t>>(1, 4);
    compare(some, {16, 4});
    OpCall none = swiglu(in.real({9, 16}, d), in.output({9, 8}, d));
    none.sizes = std::make_shared<const std::vector<int64_t>>(1, 0);
    compare(none);
  });
}

TEST_CASE("optimizer steps on fp32 and 16-bit parameters and gradients") {
  Inputs in(5);
  for (int64_t n : {1, 64, 5003})
    each_real([&](DType p) {
      each_real([&](DType g) {
        const Tensor scale = in.list({1}, DType::f32, {0.37});
        AdamWAttr adam;
        adam.learning_rate = 0.01;
        adam.weight_decay = 0.1;
        adam.step = 3;
        compare(adamw(in.real({n}, p), in.real({n}, g), in.real({n}, DType::f32),
                      in.real({n}, DType::f32, 0, 1), scale, adam),
                {8, 2});
        compare(adamw(in.real({n}, p), in.real({n}, g), in.real({n}, p), in.real({n}, p, 0, 1),
                      scale, adam),
                {8, 2});
        SgdAttr descent;
        descent.learning_rate = 0.1;
        descent.weight_decay = 0.01;
        compare(sgd(in.real({n}, p), in.real({n}, g), scale, descent), {4, 2});
      });
      compare(sum_squares(in.real({n}, p), in.list({1}, DType::f32, {2})), {16, 0, DType::f32});
    });
  compare(sum_squares(in.real({0}, DType::f32), in.list({1}, DType::f32, {2})));
  for (double valid : {0.0, 90.0})
    for (double most : {0.0, 0.5, 1e6})
      compare(clip_factor(in.list({2}, DType::f32, {4, valid}), in.output({2}, DType::f32),
                          {most, 100}),
              {4, 0});
}

}  // namespace moetwin::cuda_on_host
