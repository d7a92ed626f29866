#include "tests/backends/sim/sim_case.h"

#include <chrono>
#include <thread>

#include "core/base/error.h"

namespace moetwin::test {
namespace {

void no_check(const OpCall&) {}
int64_t no_workspace(const OpCall&) { return 0; }

void spin_kernels(const OpCall& call, const KernelChoice&, KernelList& out) {
  const auto attr = call.get<SpinAttr>();
  for (int64_t k = 0; k < attr.kernels; ++k) {
    KernelWork work;
    work.kind = attr.kind;
    work.bytes = attr.seconds / static_cast<double>(attr.kernels) * 100e9;
    out.push_back(work);
  }
}
void small_kernel(const OpCall& call, const KernelChoice&, KernelList& out) {
  KernelWork work;
  work.bytes = static_cast<double>(2 * call[0].bytes());
  out.push_back(work);
}

constexpr Operand kOperands[] = {{"y", Access::read_write}};
constexpr Operand kWritten[] = {{"y", Access::write}};
constexpr int kFirst = 1000;  // beyond the table of core/ops
const Op kSpin{"spin", kFirst, kOperands, no_check, spin_kernels, no_workspace};
const Op kAxpb{"axpb", kFirst + 1, kOperands, no_check, small_kernel, no_workspace};
const Op kCountUp{"count_up", kFirst + 2, kWritten, no_check, small_kernel, no_workspace};
const Op kCountUpLate{"count_up_late", kFirst + 4, kWritten, no_check, small_kernel, no_workspace};
const Op kExplode{"explode", kFirst + 3, kOperands, no_check, small_kernel, no_workspace};

struct AxpbAttr {
  double alpha, beta;
};
struct TextAttr {
  const char* text;
};

void nothing(const ReferenceCall&) {}
void axpb_reference(const ReferenceCall& call) {
  const auto attr = call.get<AxpbAttr>();
  auto* y = call[0].as<float>();
  for (int64_t i = 0; i < call[0].shape.elements(); ++i)
    y[i] = static_cast<float>(attr.alpha * y[i] + attr.beta);
}
void count_up_reference(const ReferenceCall& call) {
  const auto attr = call.get<AxpbAttr>();
  for (int64_t i = 0; i < call[0].shape.elements(); ++i) {
    const double value = static_cast<double>(i) + attr.beta;
    switch (call[0].dtype) {
      case DType::f32:
        call[0].as<float>()[i] = static_cast<float>(value);
        break;
      case DType::f64:
        call[0].as<double>()[i] = value;
        break;
      case DType::i64:
        call[0].as<int64_t>()[i] = static_cast<int64_t>(value);
        break;
      default:
        throw std::logic_error("count_up: dtype");
    }
  }
}
void count_up_late_reference(const ReferenceCall& call) {
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  count_up_reference(call);
}
void explode_reference(const ReferenceCall& call) {
  throw Error(ErrorClass::non_finite, call.get<TextAttr>().text);
}

Reference references(const Op& op) {
  if (&op == &kSpin) return nothing;
  if (&op == &kAxpb) return axpb_reference;
  if (&op == &kCountUp) return count_up_reference;
  if (&op == &kCountUpLate) return count_up_late_reference;
  if (&op == &kExplode) return explode_reference;
  return nullptr;
}

}  // namespace

ClusterProfile toy() { return read_cluster_profile("toy-8gpu", {TEST_CLUSTERS}); }

ClusterProfile ideal() {
  ClusterProfile profile = toy();
  profile.gpu.launch_overhead_seconds = Seconds(0);
  profile.nvlink.latency = profile.nic.latency = profile.pcie.latency = Seconds(0);
  return profile;
}

Scenario toy_scenario(int64_t world) {
  Scenario scenario;
  scenario.distributed_config.world_size = world;
  scenario.cluster.profile = "toy-8gpu";
  return scenario;
}

OpCall spin(const Tensor& y, double seconds, int64_t kernels, KernelKind kind) {
  return make_call(kSpin, {y}, SpinAttr{seconds, kernels, kind});
}
OpCall axpb(const Tensor& y, double alpha, double beta) {
  return make_call(kAxpb, {y}, AxpbAttr{alpha, beta});
}
OpCall count_up(const Tensor& y, double value) {
  return make_call(kCountUp, {y}, AxpbAttr{0, value});
}
OpCall count_up_late(const Tensor& y, double value) {
  return make_call(kCountUpLate, {y}, AxpbAttr{0, value});
}
OpCall explode(const Tensor& y, const char* message) {
  return make_call(kExplode, {y}, TextAttr{message});
}

void Case::run(const std::function<void(Backend&)>& program) const {
  SimOptions options;
  options.threads = threads;
  options.references = references;
  options.context_factory = context_factory;
  options.wrap = wrap;
  make_sim_cluster(scenario, profile, options)->run(program);
}

std::vector<double> Case::numbers(const std::function<double(Backend&)>& program) const {
  return in_child([&] {
    std::vector<double> results(static_cast<size_t>(scenario.distributed_config.world_size));
    run([&](Backend& device) {
      results[static_cast<size_t>(device.properties().rank)] = program(device);
    });
    return results;
  });
}

std::vector<float> values_of(Backend& device, const Tensor& tensor, Stream stream) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  device.read(tensor, values.data(), stream);
  return values;
}

Group all_ranks(const Backend& device) {
  Group group;
  group.n1 = device.properties().world;
  return group;
}

}  // namespace moetwin::test
