#include "core/train/checkpoint/state.h"

namespace moetwin {

namespace {

std::array<int64_t, 3> extents_of(const Tensor& tensor) {
  std::array<int64_t, 3> extents{1, 1, 1};
  const int rank = tensor.shape.rank;
  for (int i = 0; i < rank; ++i) extents[static_cast<size_t>(3 - rank + i)] = tensor.shape[i];
  return extents;
}

std::string state_name(const char* moment, const std::string& name) {
  return moment ? moment_name(moment, name) : name;
}

}  // namespace

std::string TrainingState::read(const Tensor& tensor) {
  owned_bytes_ += tensor.bytes();
  // With numerics off: the time of the copy and nothing else.
  std::string bytes(tensor.has_storage() ? static_cast<size_t>(tensor.bytes()) : 0, '\0');
  context_.to_host(tensor, bytes.empty() ? nullptr : bytes.data(), context_.streams.compute);
  return bytes;
}

std::vector<OwnedPart> TrainingState::owned() {
  std::vector<OwnedPart> parts;
  owned_bytes_ = 0;
  const auto add = [&](const StatePiece& piece, const Tensor& tensor, const char* moment) {
    if (!tensor.defined()) return;
    const std::string bytes = read(tensor);
    if (bytes.empty()) return;
    const int64_t size = dtype_size(tensor.dtype);
    const TensorPart mine = local_part(*piece.parameter, piece.first, piece.count);
    for (const NamedPart& named :
         named_parts(*piece.parameter, experts_, piece.first, piece.count)) {
      std::string own(static_cast<size_t>(named.part.count * size), '\0');
      copy_common(mine, bytes.data(), named.here, own.data(), size);
      parts.push_back({state_name(moment, named.name), tensor.dtype, named.part, std::move(own)});
    }
  };
  for (FlatGroup& group : groups_)
    group.for_each_piece(context_, [&](const StatePiece& piece) {
      if (!piece.owner) return;
      add(piece, piece.weight, nullptr);
      add(piece, piece.m, "m");
      add(piece, piece.v, "v");
    });
  if (at_.ddp != 0 || at_.tp != 0) return parts;
  for (const RoutingState& state : balance_.state()) {
    const Tensor& tensor = state.tensor;
    // With numerics off counts have elements all the same, and nobody to write them.
    const std::string bytes = read(tensor);
    const TensorPart all = TensorPart::whole(extents_of(tensor));
    const int64_t size = dtype_size(tensor.dtype);
    for (const Place& place : places(state)) {
      if (bytes.empty()) continue;
      std::string own(static_cast<size_t>(place.here.count * size), '\0');
      copy_common(all, bytes.data(), place.here, own.data(), size);
      parts.push_back({state.name, tensor.dtype, place.whole, std::move(own)});
    }
  }
  return parts;
}

std::vector<TrainingState::Place> TrainingState::places(const RoutingState& state) const {
  const std::array<int64_t, 3> here = extents_of(state.tensor);
  if (!state.by_layer) return {{TensorPart::whole(here), TensorPart::whole(here)}};
  // One piece per layer: a rank need not have neighbours.
  std::vector<Place> all;
  for (int64_t l = 0; l < balance_.layers(); ++l) {
    Place place;
    place.here.global = place.whole.global = here;
    place.whole.global[1] = model_.num_moe_layers();
    place.here.local = place.whole.local = {here[0], 1, here[2]};
    place.here.offset = {0, l, 0};
    place.whole.offset = {0, model_.moe_layers_before(balance_.layer_number(l)), 0};
    place.here.count = place.whole.count = here[0] * here[2];
    all.push_back(place);
  }
  return all;
}

void TrainingState::restore(const Checkpoint& checkpoint) {
  const auto load = [&](const StatePiece& piece, const Tensor& tensor, const char* moment) {
    if (!tensor.defined()) return;
    std::string bytes(static_cast<size_t>(tensor.bytes()), '\0');
    const int64_t size = dtype_size(tensor.dtype);
    const TensorPart mine = local_part(*piece.parameter, piece.first, piece.count);
    for (const NamedPart& named :
         named_parts(*piece.parameter, experts_, piece.first, piece.count)) {
      std::string own(static_cast<size_t>(named.part.count * size), '\0');
      checkpoint.read(state_name(moment, named.name), tensor.dtype, named.part, own.data());
      copy_common(named.here, own.data(), mine, bytes.data(), size);
    }
    context_.device.write(tensor, bytes.data(), context_.streams.compute);
  };
  // Weights alone: moments start at zero.
  const bool moments = checkpoint.manifest().optimizer != kWeightsAlone;
  for (FlatGroup& group : groups_)
    group.for_each_piece(context_, [&](const StatePiece& piece) {
      load(piece, piece.weight, nullptr);
      if (!moments) return;
      load(piece, piece.m, "m");
      load(piece, piece.v, "v");
    });
  reducer_.weights_changed(context_);
  for (const RoutingState& state : balance_.state()) {
    // A balance that this training adds starts at zero, as in a new one. With weights alone comes
    // what they were trained to be used with, the bias, and nothing of earlier steps.
    if (!moments && state.name != kBalanceBias) continue;
    if (state.by_layer && !checkpoint.has(state.name)) continue;
    const Tensor& tensor = state.tensor;
    std::string bytes(static_cast<size_t>(tensor.bytes()), '\0');
    const TensorPart all = TensorPart::whole(extents_of(tensor));
    const int64_t size = dtype_size(tensor.dtype);
    for (const Place& place : places(state)) {
      std::string own(static_cast<size_t>(place.here.count * size), '\0');
      checkpoint.read(state.name, tensor.dtype, place.whole, own.data());
      copy_common(place.here, own.data(), all, bytes.data(), size);
    }
    context_.device.write(tensor, bytes.data(), context_.streams.compute);
  }
}

}  // namespace moetwin
