#include "backends/sim/calibration/measurements.h"

#include <fmt/format.h>

#include "backends/sim/cluster/profile.h"
#include "core/base/error.h"

namespace moetwin {
namespace {

constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16,
                             DType::f64, DType::i32,  DType::i64};
constexpr CollectiveKind kCollectives[] = {
    CollectiveKind::all_reduce,   CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
    CollectiveKind::all_to_all_v, CollectiveKind::broadcast,  CollectiveKind::send};

/// A reader that says where something is wrong.
class Place {
 public:
  Place(const Json::Value& json, std::string at) : json_(json), at_(std::move(at)) {}

  const Json::Value& member(const char* key) const {
    if (!json_.isObject() || !json_.isMember(key)) fail(key, "is missing");
    return json_[key];
  }
  double number(const char* key) const {
    const Json::Value& value = member(key);
    if (!value.isNumeric()) fail(key, "must be a number");
    return value.asDouble();
  }
  double positive(const char* key) const {
    const double value = number(key);
    if (!(value > 0)) fail(key, fmt::format("{} must be greater than 0", value));
    return value;
  }
  std::string text(const char* key) const {
    const Json::Value& value = member(key);
    if (!value.isString()) fail(key, "must be text");
    return value.asString();
  }
  /// The value whose name stands at `key`.
  template <class T, size_t n>
  T named(const char* key, const T (&values)[n], const char* (*name_of)(T)) const {
    const std::string name = text(key);
    std::string legal;
    for (const T value : values) {
      if (name == name_of(value)) return value;
      legal += std::string(legal.empty() ? "" : ", ") + name_of(value);
    }
    fail(key, fmt::format("\"{}\" is not known; legal: {}", name, legal));
  }
  std::vector<Place> list(const char* key) const {
    const Json::Value& values = member(key);
    if (!values.isArray()) fail(key, "must be a list");
    std::vector<Place> places;
    for (Json::ArrayIndex i = 0; i < values.size(); ++i)
      places.emplace_back(values[i], fmt::format("{}{}[{}].", at_, key, i));
    return places;
  }
  bool has(const char* key) const { return json_.isObject() && json_.isMember(key); }
  HostSizes integers(const char* key) const {
    const Json::Value& values = member(key);
    if (!values.isArray()) fail(key, "must be a list");
    std::vector<int64_t> list;
    for (const Json::Value& value : values) {
      if (!value.isInt64() || value.asInt64() < 0) fail(key, "must hold whole numbers, 0 or more");
      list.push_back(value.asInt64());
    }
    return std::make_shared<const std::vector<int64_t>>(std::move(list));
  }
  [[noreturn]] void fail(const char* key, const std::string& what) const {
    throw Error(ErrorClass::configuration, fmt::format("{}{}: {}", at_, key, what));
  }

 private:
  const Json::Value& json_;
  std::string at_;
};

constexpr KernelKind kKinds[] = {
    KernelKind::gemm,        KernelKind::grouped_gemm, KernelKind::attention,
    KernelKind::elementwise, KernelKind::reduction,    KernelKind::gather,
    KernelKind::sort,        KernelKind::optimizer,    KernelKind::copy};
static_assert(std::size(kKinds) == kKernelKinds);

Json::Value kernel_json(const KernelMeasurement& m) {
  Json::Value json(Json::objectValue);
  json["what"] = m.what;
  json["seconds"] = m.seconds;
  json["flop_per_second"] = flop_of(m) / m.seconds;
  json["bytes_per_second"] = bytes_of(m) / m.seconds;
  for (const KernelWork& k : m.kernels) {
    Json::Value work(Json::objectValue);
    work["kind"] = kernel_kind_name(k.kind);
    work["dtype"] = dtype_name(k.dtype);
    work["flop"] = k.flop;
    work["bytes"] = k.bytes;
    work["m"] = Json::Int64(k.m);
    work["n"] = Json::Int64(k.n);
    work["k"] = Json::Int64(k.k);
    work["batch"] = Json::Int64(k.batch);
    if (k.group_rows)
      for (const int64_t rows : *k.group_rows) work["group_rows"].append(Json::Int64(rows));
    json["kernels"].append(work);
  }
  return json;
}

KernelMeasurement kernel_from(const Place& in) {
  KernelMeasurement m;
  m.what = in.text("what");
  m.seconds = in.positive("seconds");
  for (const Place& place : in.list("kernels")) {
    KernelWork k;
    k.kind = place.named("kind", kKinds, kernel_kind_name);
    k.dtype = place.named("dtype", kDTypes, dtype_name);
    k.flop = place.number("flop");
    k.bytes = place.number("bytes");
    k.m = static_cast<int64_t>(place.number("m"));
    k.n = static_cast<int64_t>(place.number("n"));
    k.k = static_cast<int64_t>(place.number("k"));
    k.batch = static_cast<int64_t>(place.number("batch"));
    if (place.has("group_rows")) {
      m.group_rows = place.integers("group_rows");
      k.group_rows = m.group_rows.get();
    }
    m.kernels.push_back(k);
  }
  return m;
}

Json::Value collective_json(const CollectiveMeasurement& m) {
  Json::Value json(Json::objectValue);
  json["what"] = m.what;
  json["kind"] = collective_name(m.kind);
  json["bytes"] = m.bytes;
  json["seconds"] = m.seconds;
  json["bus_bytes_per_second"] = m.bytes * bus_factor(m.kind, m.group.size()) / m.seconds;
  Json::Value& group = json["group"];
  group["base"] = Json::Int64(m.group.base);
  group["n0"] = Json::Int64(m.group.n0);
  group["stride0"] = Json::Int64(m.group.stride0);
  group["n1"] = Json::Int64(m.group.n1);
  group["stride1"] = Json::Int64(m.group.stride1);
  Json::Value& pairs = json["pair_bytes"] = Json::Value(Json::arrayValue);
  for (const double bytes : m.pair_bytes) pairs.append(bytes);
  return json;
}

CollectiveMeasurement collective_from(const Place& in, const std::string& at) {
  CollectiveMeasurement m;
  m.what = in.text("what");
  m.kind = in.named("kind", kCollectives, collective_name);
  m.bytes = in.positive("bytes");
  m.seconds = in.positive("seconds");
  const Place group(in.member("group"), at + "group.");
  m.group.base = static_cast<int64_t>(group.number("base"));
  m.group.n0 = static_cast<int64_t>(group.positive("n0"));
  m.group.stride0 = static_cast<int64_t>(group.number("stride0"));
  m.group.n1 = static_cast<int64_t>(group.positive("n1"));
  m.group.stride1 = static_cast<int64_t>(group.number("stride1"));
  const Json::Value& pairs = in.member("pair_bytes");
  if (!pairs.isArray()) in.fail("pair_bytes", "must be a list");
  for (const Json::Value& bytes : pairs) m.pair_bytes.push_back(bytes.asDouble());
  const auto n = static_cast<size_t>(m.group.size());
  if (m.kind == CollectiveKind::all_to_all_v && m.pair_bytes.size() != n * n)
    in.fail("pair_bytes",
            fmt::format("has {} numbers; {} members need {}", m.pair_bytes.size(), n, n * n));
  return m;
}

}  // namespace

double flop_of(const KernelMeasurement& m) {
  double flop = 0;
  for (const KernelWork& k : m.kernels) flop += k.flop;
  return flop;
}

double bytes_of(const KernelMeasurement& m) {
  double bytes = 0;
  for (const KernelWork& k : m.kernels) bytes += k.bytes;
  return bytes;
}

double bus_factor(CollectiveKind kind, int64_t members) {
  const auto n = static_cast<double>(members);
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 2 * (n - 1) / n;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all_v:
      return (n - 1) / n;
    default:
      return 1;
  }
}

Json::Value measurements_json(const Measurements& m) {
  Json::Value json(Json::objectValue);
  json["schema"] = "moetwin-measurements/1";
  json["machine"] = m.machine;
  json["device"] = m.device_name;
  json["memory_bytes"] = Json::Int64(m.memory_bytes);
  json["gpus_per_node"] = Json::Int64(m.gpus_per_node);
  json["dtype"] = dtype_name(m.dtype);
  json["peak_flop_per_second"] = m.peak_flop_per_second;
  json["peak_source"] = m.peak_source;
  json["launch_seconds"] = m.launch_seconds;
  for (const char* list : {"kernels", "collectives", "copies"})
    json[list] = Json::Value(Json::arrayValue);
  for (const KernelMeasurement& k : m.kernels) json["kernels"].append(kernel_json(k));
  for (const CollectiveMeasurement& c : m.collectives)
    json["collectives"].append(collective_json(c));
  for (const CopyMeasurement& c : m.copies) {
    Json::Value copy(Json::objectValue);
    copy["to_device"] = c.to_device;
    copy["bytes"] = c.bytes;
    copy["seconds"] = c.seconds;
    copy["bytes_per_second"] = c.bytes / c.seconds;
    json["copies"].append(copy);
  }
  return json;
}

Measurements measurements_from(const Json::Value& json, const std::string& file) {
  const std::string at = file + ": ";
  const Place in(json, at);
  if (in.text("schema") != "moetwin-measurements/1")
    in.fail("schema",
            fmt::format("\"{}\" is not known; legal: moetwin-measurements/1", in.text("schema")));
  Measurements m;
  m.machine = in.text("machine");
  m.device_name = in.text("device");
  m.memory_bytes = static_cast<int64_t>(in.number("memory_bytes"));
  m.gpus_per_node = static_cast<int64_t>(in.number("gpus_per_node"));
  m.dtype = in.named("dtype", kDTypes, dtype_name);
  m.peak_flop_per_second = in.number("peak_flop_per_second");
  m.peak_source = in.text("peak_source");
  m.launch_seconds = in.number("launch_seconds");
  for (const Place& place : in.list("kernels")) m.kernels.push_back(kernel_from(place));
  size_t i = 0;
  for (const Place& place : in.list("collectives"))
    m.collectives.push_back(collective_from(place, fmt::format("{}collectives[{}].", at, i++)));
  for (const Place& place : in.list("copies"))
    m.copies.push_back(
        {place.member("to_device").asBool(), place.positive("bytes"), place.positive("seconds")});
  return m;
}

}  // namespace moetwin
