// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-segment-user: does with segments what a scenario asks for, and says on stdout what came
// of it, a JSON object for each step.
//
//	own PID STEP...			the memory of process PID, which runs `pcilend segment
//create` 	create NODE STEP...		a page that takes notifications, offered to that node
//	connect ID[,ro][,wc] STEP...	a segment of another host
//
// Steps: fill SEED, check SEED: a word of each page; fill-all SEED BYTES, check-all SEED BYTES: all
// words from the start on; ones: a word of each page is all-ones; scribble: stores to each page;
// private: it can't be mapped otherwise than it is; lost: waits until it is lost; epoch: says it;
// notify: notifies its owner; notified: waits until that has been done.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "pcilend/segment.h"

namespace {

using namespace pcilend;
using Json = nlohmann::json;

constexpr size_t kPage = 4096;
constexpr int kPatienceMs = 120000;

// What belongs at a place: no two are alike.
uint64_t pattern(uint64_t seed, uint64_t place) {
  uint64_t z = (seed << 40) + place * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

Result<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size())
    return fail(ErrorClass::Usage, "'{}' is no number", text);
  return value;
}

// Loads and stores of eight bytes, each of which happens.
class Words {
 public:
  explicit Words(std::span<std::byte> bytes)
      : words_(reinterpret_cast<volatile uint64_t*>(bytes.data())), bytes_(bytes.size()) {}

  [[nodiscard]] size_t bytes() const { return bytes_; }
  void store(size_t offset, uint64_t value) { words_[offset / 8] = value; }
  [[nodiscard]] uint64_t load(size_t offset) const { return words_[offset / 8]; }

 private:
  volatile uint64_t* words_;
  size_t bytes_;
};

struct Memory {
  Words words;
  Client* client = nullptr;
  Connection* connection = nullptr;  // none: it is this host's own
  int event = -1;
};

Result<uint64_t> messages(Client& client) {
  const auto links = client.links();
  if (!links) return tl::unexpected(links.error());
  uint64_t sum = 0;
  for (const auto& link : *links) sum += link.tx_messages + link.rx_messages;
  return sum;
}

Result<Json> compare(const Words& words, uint64_t seed, size_t bytes, size_t step) {
  uint64_t wrong = 0;
  uint64_t looked = 0;
  for (size_t at = 0; at < bytes; at += step, ++looked)
    wrong += words.load(at) != (seed == ~uint64_t{0} ? seed : pattern(seed, at));
  return Json{{"looked", looked}, {"wrong", wrong}};
}

Result<Json> store(Words& words, uint64_t seed, size_t bytes, size_t step) {
  for (size_t at = 0; at < bytes; at += step) words.store(at, pattern(seed, at));
  return Json{{"stored", bytes / step}};
}

// What may not be mapped: a copy on write, and for writing what is read-only.
Result<Json> map_otherwise(const Memory& memory) {
  const int fd = memory.connection->buffer();
  const auto mapped = [&](int protection, int flags) {
    void* const at = ::mmap(nullptr, kPage, protection, flags, fd, 0);
    if (at != MAP_FAILED) ::munmap(at, kPage);
    return at != MAP_FAILED;
  };
  return Json{{"private", mapped(PROT_READ, MAP_PRIVATE)},
              {"writable", mapped(PROT_READ | PROT_WRITE, MAP_SHARED)}};
}

Result<Json> await_loss(const Connection& connection) {
  pollfd wait{connection.fd(), 0, 0};
  if (::poll(&wait, 1, kPatienceMs) < 0) return fail_errno("poll");
  return Json{{"lost", connection.lost()}};
}

Result<Json> await_notification(int event) {
  pollfd wait{event, POLLIN, 0};
  if (::poll(&wait, 1, kPatienceMs) < 0) return fail_errno("poll");
  uint64_t count = 0;
  if (::read(event, &count, sizeof count) != sizeof count) return fail_errno("read of the eventfd");
  return Json{{"count", count}};
}

Result<Json> run(Memory& memory, std::span<char*> arguments, size_t* at) {
  const std::string_view step = arguments[(*at)++];
  const auto next = [&]() -> Result<uint64_t> {
    if (*at >= arguments.size()) return fail(ErrorClass::Usage, "{}: of what?", step);
    return number(arguments[(*at)++]);
  };
  const size_t size = memory.words.bytes();
  if (step == "ones") return compare(memory.words, ~uint64_t{0}, size, kPage);
  if (step == "scribble") return store(memory.words, 77, size, kPage);
  if (step == "notified") return await_notification(memory.event);
  if (memory.connection) {
    if (step == "notify") {
      PCILEND_TRY(memory.connection->notify());
      return Json::object();
    }
    if (step == "private") return map_otherwise(memory);
    if (step == "lost") return await_loss(*memory.connection);
    if (step == "epoch") return Json{{"epoch", memory.connection->epoch()}};
  }
  const auto seed = next();
  if (!seed) return tl::unexpected(seed.error());
  if (step == "fill") return store(memory.words, *seed, size, kPage);
  if (step == "check") return compare(memory.words, *seed, size, kPage);
  const auto bytes = next();
  if (!bytes) return tl::unexpected(bytes.error());
  if (step == "fill-all") return store(memory.words, *seed, std::min<size_t>(*bytes, size), 8);
  if (step == "check-all") return compare(memory.words, *seed, std::min<size_t>(*bytes, size), 8);
  return fail(ErrorClass::Usage, "no step '{}'", step);
}

Result<> run_all(Memory& memory, std::span<char*> arguments) {
  for (size_t at = 0; at < arguments.size();) {
    const std::string step = arguments[at];
    std::optional<Sequence> sequence;
    uint64_t before = 0;
    if (memory.connection) {
      sequence.emplace(*memory.connection);
      const auto count = messages(*memory.client);
      if (!count) return tl::unexpected(count.error());
      before = *count;
      std::cout << Json{{"begins", step}}.dump() << std::endl;
    }
    auto said = run(memory, arguments, &at);
    if (!said) return tl::unexpected(std::move(said).error());
    (*said)["step"] = step;
    if (memory.connection) {
      (*said)["complete"] = sequence->complete();
      const auto count = messages(*memory.client);
      if (!count) return tl::unexpected(count.error());
      (*said)["messages"] = *count - before;
    }
    std::cout << said->dump() << std::endl;
  }
  return {};
}

// The memory that another process shares, by what it has mapped.
Result<> own(const std::string& pid, std::span<char*> steps) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/" + pid + "/map_files", error)) {
    if (fs::read_symlink(entry.path(), error).native().find("memfd:pcilend-segment") ==
        std::string::npos)
      continue;
    const UniqueFd fd(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
    if (!fd) return fail_errno(entry.path().native());
    auto mapping =
        Mapping::map(fd.get(), 0, static_cast<size_t>(::lseek(fd.get(), 0, SEEK_END)), true);
    if (!mapping) return tl::unexpected(std::move(mapping).error());
    Memory memory{Words(mapping->bytes())};
    return run_all(memory, steps);
  }
  return fail(ErrorClass::NotFound, "process {} shares no memory", pid);
}

Result<> create(std::string_view node, std::span<char*> steps) {
  const auto id = parse_node_id(node);
  if (!id) return tl::unexpected(id.error());
  const auto client = open_client();
  if (!client) return tl::unexpected(client.error());
  auto segment = OwnedSegment::create(**client, kPage, "notified", false, true);
  if (!segment) return tl::unexpected(std::move(segment).error());
  PCILEND_TRY((*client)->offer_segment(segment->id(), *id, false));
  std::cout << Json{{"id", to_string(segment->id())}}.dump() << std::endl;
  Memory memory{Words(segment->bytes()), nullptr, nullptr, segment->notifications()};
  return run_all(memory, steps);
}

Result<> connect(std::string_view what, std::span<char*> steps) {
  const auto id = parse_function_id(what.substr(0, what.find(',')));
  if (!id) return tl::unexpected(id.error());
  const auto client = open_client();
  if (!client) return tl::unexpected(client.error());
  ConnectOptions options;
  options.read_only = what.find(",ro") != std::string_view::npos;
  options.write_combining = what.find(",wc") != std::string_view::npos;
  auto connection = Connection::open(**client, *id, options);
  if (!connection) return tl::unexpected(std::move(connection).error());
  Memory memory{Words(connection->bytes()), client->get(), &*connection};
  return run_all(memory, steps);
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> arguments(argv, static_cast<size_t>(argc));
  const std::string_view verb = argc > 2 ? argv[1] : "";
  Result<> done =
      fail(ErrorClass::Usage, "usage: {} own PID | create NODE | connect ID[,ro][,wc]  STEP...",
           argc ? argv[0] : "");
  if (verb == "create") done = create(argv[2], arguments.subspan(3));
  if (verb == "own") done = own(argv[2], arguments.subspan(3));
  if (verb == "connect") done = connect(argv[2], arguments.subspan(3));
  if (done) return 0;
  std::cerr << done.error().message << "\n";
  return static_cast<int>(done.error().kind);
}
