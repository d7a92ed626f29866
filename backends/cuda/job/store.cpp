#include "backends/cuda/job/store.h"

#include "backends/cuda/job/store_state.h"
#include "core/base/bytes.h"

namespace moetwin {
namespace {
constexpr double kShort = 10;  ///< for what is answered at once

ByteWriter& put_ranks(ByteWriter& writer, const std::vector<int64_t>& ranks) {
  writer.put(static_cast<uint64_t>(ranks.size()));
  for (int64_t r : ranks) writer.put(r);
  return writer;
}
}  // namespace

std::string Store::ask(const std::string& request, double seconds) {
  const std::string reply = exchange(request, seconds);
  ByteReader reader(reply);
  if (reader.get<StoreReply>() == StoreReply::ok) return reply.substr(1);
  const auto error_class = reader.get<ErrorClass>();
  Failure{error_class, reader.text()}.raise();
}

void Store::set(const std::string& key, const std::string& value) {
  ask(ByteWriter().put(StoreRequest::set).text(key).text(value).take(), kShort);
}

std::string Store::get(const std::string& key, double seconds) {
  return ask(ByteWriter().put(StoreRequest::get).text(key).put(seconds).take(), seconds);
}

std::vector<std::string> Store::gather(const std::string& name, int64_t rank,
                                       const std::vector<int64_t>& members,
                                       const std::string& bytes, double seconds) {
  ByteWriter writer;
  writer.put(StoreRequest::gather).text(name).put(rank);
  put_ranks(writer, members).text(bytes).put(seconds);
  const std::string reply = ask(writer.take(), seconds);
  ByteReader reader(reply);
  std::vector<std::string> all;
  for (size_t i = 0; i < members.size(); ++i) all.push_back(reader.text());
  return all;
}

void Store::compare(const std::string& call, int64_t rank, const std::vector<int64_t>& members,
                    const std::string& fingerprint, double seconds) {
  ByteWriter writer;
  writer.put(StoreRequest::compare).text(call).put(rank);
  put_ranks(writer, members).text(fingerprint).put(seconds);
  ask(writer.take(), seconds);
}

void Store::compare_pair(const std::string& call, int64_t rank, const std::string& fingerprint) {
  ask(ByteWriter().put(StoreRequest::compare_pair).text(call).put(rank).text(fingerprint).take(),
      kShort);
}

std::optional<Failure> Store::beat(int64_t rank, const std::string& status) {
  const std::string reply =
      ask(ByteWriter().put(StoreRequest::beat).put(rank).text(status).take(), kShort);
  ByteReader reader(reply);
  if (!reader.get<bool>()) return std::nullopt;
  Failure failure;
  failure.error_class = reader.get<ErrorClass>();
  failure.message = reader.text();
  return failure;
}

std::vector<RankHeartbeat> Store::states() {
  const std::string reply = ask(ByteWriter().put(StoreRequest::states).take(), kShort);
  ByteReader reader(reply);
  std::vector<RankHeartbeat> all(reader.get<uint64_t>());
  for (RankHeartbeat& s : all) {
    s.rank = reader.get<int64_t>();
    s.age = reader.get<double>();
    s.gone = reader.get<bool>();
    s.ended = reader.get<bool>();
    s.process = reader.text();
    s.status = reader.text();
  }
  return all;
}

Failure Store::fail(const Failure& failure) {
  const std::string reply = ask(
      ByteWriter().put(StoreRequest::fail).put(failure.error_class).text(failure.message).take(),
      kShort);
  ByteReader reader(reply);
  Failure stands;
  stands.error_class = reader.get<ErrorClass>();
  stands.message = reader.text();
  return stands;
}

void Store::post(const std::string& bytes) {
  ask(ByteWriter().put(StoreRequest::post).text(bytes).take(), kShort);
}

double Store::clock() {
  const std::string reply = ask(ByteWriter().put(StoreRequest::clock).take(), kShort);
  return ByteReader(reply).get<double>();
}

void Store::goodbye(int64_t rank) {
  ask(ByteWriter().put(StoreRequest::goodbye).put(rank).take(), kShort);
}

}  // namespace moetwin
