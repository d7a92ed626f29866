#include "core/train/checkpoint/save.h"

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/base/error.h"
#include "core/train/checkpoint/checksum.h"
#include "core/train/checkpoint/safetensors.h"

namespace moetwin {

namespace {

SafetensorsMetadata metadata_of(int64_t step) {
  return {{"format", "moetwin"}, {"step", std::to_string(step)}};
}

/// Enters a part into the tensors of a save.
void enter(std::map<std::string, StoredTensor>& tensors, const std::string& name, DType dtype,
           StoredPart part) {
  StoredTensor& tensor = tensors[name];
  if (tensor.parts.empty()) {
    tensor.dtype = dtype;
    tensor.extents = part.part.global;
  }
  require(tensor.dtype == dtype && tensor.extents == part.part.global,
          "ranks agree on the dtype and extents of a tensor");
  tensor.parts.push_back(std::move(part));
}

}  // namespace

void SavePart::join(SavePart other) {
  if (ranks == 0) position = other.position;
  require(position.step == other.position.step, "parts of one save are of one step");
  ranks += other.ranks;
  files.merge(other.files);
  for (auto& [name, tensor] : other.tensors)
    for (StoredPart& part : tensor.parts) enter(tensors, name, tensor.dtype, std::move(part));
  for (OwnedPart& part : other.owned) owned.push_back(std::move(part));
}

std::string SavePart::bytes() const {
  ByteWriter out;
  out.put(position).put(ranks).put(static_cast<uint64_t>(files.size()));
  for (const auto& [name, file] : files) out.text(name).put(file);
  out.put(static_cast<uint64_t>(tensors.size()));
  for (const auto& [name, tensor] : tensors) {
    out.text(name).put(tensor.dtype).put(static_cast<uint64_t>(tensor.parts.size()));
    for (const StoredPart& part : tensor.parts)
      out.text(part.file).text(part.key).put(part.part).put(part.checksum);
  }
  out.put(static_cast<uint64_t>(owned.size()));
  for (const OwnedPart& part : owned)
    out.text(part.tensor).put(part.dtype).put(part.part).text(part.bytes);
  return out.take();
}

SavePart SavePart::from_bytes(const std::string& bytes) {
  ByteReader in(bytes);
  SavePart save;
  save.position = in.get<TrainingPosition>();
  save.ranks = in.get<int64_t>();
  for (auto n = in.get<uint64_t>(); n > 0; --n) {
    const std::string name = in.text();
    save.files[name] = in.get<StoredFile>();
  }
  for (auto n = in.get<uint64_t>(); n > 0; --n) {
    const std::string name = in.text();
    const auto dtype = in.get<DType>();
    for (auto parts = in.get<uint64_t>(); parts > 0; --parts) {
      StoredPart part;
      part.file = in.text();
      part.key = in.text();
      part.part = in.get<TensorPart>();
      part.checksum = in.get<uint32_t>();
      enter(save.tensors, name, dtype, std::move(part));
    }
  }
  for (auto n = in.get<uint64_t>(); n > 0; --n) {
    OwnedPart part;
    part.tensor = in.text();
    part.dtype = in.get<DType>();
    part.part = in.get<TensorPart>();
    part.bytes = in.text();
    save.owned.push_back(std::move(part));
  }
  return save;
}

std::string shard_name(int64_t rank, int64_t world) {
  return fmt::format("rank-{:05}-of-{:05}.safetensors", rank, world);
}

void write_file(FileOperations& files, const std::string& path,
                const std::vector<std::string_view>& pieces) {
  const int file = files.create(path);
  try {
    for (const std::string_view piece : pieces) files.write(file, piece.data(), piece.size(), path);
    files.sync(file, path);
  } catch (...) {
    files.close(file, path);
    throw;
  }
  files.close(file, path);
}

void write_shard(FileOperations& files, const std::string& directory, const std::string& name,
                 const RankState& state, SavePart& part) {
  std::vector<SafetensorsEntry> entries;
  for (const OwnedPart& owned : state.parts) {
    SafetensorsEntry entry;
    entry.dtype = owned.dtype;
    entry.name = owned.tensor;
    if (owned.part.is_whole()) {
      entry.shape = written_shape(owned.part.global);
    } else {
      entry.name += fmt::format("#{}", owned.part.first());
      entry.shape = owned.part.is_box() ? written_shape(owned.part.local)
                                        : std::vector<int64_t>{owned.part.count};
    }
    enter(part.tensors, owned.tensor, owned.dtype,
          {name, entry.name, owned.part, checksum(owned.bytes)});
    entries.push_back(std::move(entry));
  }
  const std::string header = safetensors_header(entries, metadata_of(state.position.step));
  std::vector<std::string_view> pieces{header};
  for (const OwnedPart& owned : state.parts) pieces.push_back(owned.bytes);
  write_file(files, directory + "/" + name, pieces);
  const int64_t elements = entries.empty() ? 0 : entries.back().end;
  part.files[name] = {static_cast<int64_t>(header.size()) + elements, checksum(header)};
}

void write_full(FileOperations& files, const std::string& directory, SavePart& whole) {
  std::map<std::string, std::vector<OwnedPart>> by_tensor;
  for (OwnedPart& part : whole.owned) by_tensor[part.tensor].push_back(std::move(part));
  whole.owned.clear();
  std::vector<SafetensorsEntry> entries;
  std::vector<std::string> elements;
  for (auto& [name, parts] : by_tensor) {
    const OwnedPart& first = parts.front();
    SafetensorsEntry entry;
    entry.name = name;
    entry.dtype = first.dtype;
    entry.shape = written_shape(first.part.global);
    const TensorPart all = TensorPart::whole(first.part.global);
    std::string bytes(static_cast<size_t>(all.count * dtype_size(first.dtype)), '\0');
    int64_t copied = 0;
    for (const OwnedPart& part : parts)
      copied +=
          copy_common(part.part, part.bytes.data(), all, bytes.data(), dtype_size(part.dtype));
    require(copied == all.count, "ranks hand in every element once");
    parts.clear();
    enter(whole.tensors, name, entry.dtype, {kFullName, name, all, checksum(bytes)});
    elements.push_back(std::move(bytes));
    entries.push_back(std::move(entry));
  }
  const std::string header = safetensors_header(entries, metadata_of(whole.position.step));
  std::vector<std::string_view> pieces{header};
  for (const std::string& bytes : elements) pieces.push_back(bytes);
  write_file(files, directory + "/" + kFullName, pieces);
  const int64_t size = entries.empty() ? 0 : entries.back().end;
  whole.files[kFullName] = {static_cast<int64_t>(header.size()) + size, checksum(header)};
}

}  // namespace moetwin
