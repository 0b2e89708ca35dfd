// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-segment-user: does with segments what a scenario asks for, and says on stdout what came
// of it, a JSON object for each step.
//
//	own PID STEP...			the memory of process PID, which runs
//					`pcilend segment create`
//	create NODE[,BYTES[,huge|,heap]] STEP...	memory that takes notifications, offered to
//					that node; a page without BYTES; of a dma-heap
//	many NODE COUNT			so many segments of a page, for ever
//	connect ID[,ro][,wc] STEP...	a segment of another host
//	crowd ID COUNT			so many connections of it, for ever
//	leave ID COUNT FUNCTION		so many end, and then it asks for memory beside that
//					function, which it has leased: how long that takes
//	guess SEED ROUNDS		requests at random, with descriptors of all kinds
//
// Steps: fill SEED, check SEED: a word of each page; fill-all SEED BYTES, check-all SEED BYTES: all
// words from the start on, with their checksum; ones: a word of each page is all-ones; scribble:
// stores to each page; private: it can't be mapped otherwise than it is; lost: waits until it is
// lost; epoch: says it; notify: notifies its owner; notified: waits until that has been done;
// traffic SEED: stores and loads until it is lost; booted: waits until its node has booted, and
// offers it again; stay: for ever.
#include <fcntl.h>
#include <linux/dma-heap.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <charconv>
#include <climits>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "pcilend/client.h"
#include "pcilend/device_buffer.h"
#include "pcilend/result.h"
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
  OwnedSegment* segment = nullptr;   // of this process, which is offered to:
  uint32_t node = 0;
};

Result<uint64_t> messages(Client& client) {
  const auto links = client.links();
  if (!links) return tl::unexpected(links.error());
  uint64_t sum = 0;
  for (const auto& link : *links) sum += link.tx_messages + link.rx_messages;
  return sum;
}

// Of words in their order (FNV-1a, by words).
class Checksum {
 public:
  void add(uint64_t word) { sum_ = (sum_ ^ word) * 0x100000001b3; }
  [[nodiscard]] uint64_t value() const { return sum_; }

 private:
  uint64_t sum_ = 0xcbf29ce484222325;
};

Result<Json> compare(const Words& words, uint64_t seed, size_t bytes, size_t step) {
  uint64_t wrong = 0;
  uint64_t looked = 0;
  Checksum sum;
  for (size_t at = 0; at < bytes; at += step, ++looked) {
    const uint64_t word = words.load(at);
    wrong += word != (seed == ~uint64_t{0} ? seed : pattern(seed, at));
    sum.add(word);
  }
  return Json{{"looked", looked}, {"wrong", wrong}, {"sum", sum.value()}};
}

Result<Json> store(Words& words, uint64_t seed, size_t bytes, size_t step) {
  Checksum sum;
  for (size_t at = 0; at < bytes; at += step) {
    const uint64_t word = pattern(seed, at);
    words.store(at, word);
    sum.add(word);
  }
  return Json{{"stored", bytes / step}, {"sum", sum.value()}};
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

// Blocks of 512 bytes to places at random, each read back once it is through. All-ones are none of
// them.
Result<Json> traffic(const Memory& memory, uint64_t seed) {
  constexpr size_t kBlock = 512;
  Words words = memory.words;
  uint64_t rounds = 0;
  uint64_t wrong = 0;
  uint64_t checked = 0;
  for (; !memory.connection->lost(); ++rounds) {
    const size_t block = pattern(seed, rounds) % (words.bytes() / kBlock) * kBlock;
    const Sequence sequence(*memory.connection);
    for (size_t at = 0; at < kBlock; at += 8) words.store(block + at, pattern(seed + rounds, at));
    if (!sequence.complete()) continue;
    uint64_t other = 0;
    uint64_t ones = 0;
    for (size_t at = 0; at < kBlock; at += 8) {
      const uint64_t value = words.load(block + at);
      ones += value == ~uint64_t{0};
      other += value != pattern(seed + rounds, at) && value != ~uint64_t{0};
    }
    // An owner that ends it is ahead of the news (docs/segments.md).
    if (!sequence.complete() || ones != 0) continue;
    ++checked;
    wrong += other;
  }
  return Json{{"rounds", rounds}, {"checked", checked}, {"wrong", wrong}};
}

Result<Json> offer_after_boot(Memory& memory) {
  pollfd wait{memory.segment->fd(), POLLPRI, 0};
  if (::poll(&wait, 1, kPatienceMs) < 0) return fail_errno("poll");
  const bool ended = (wait.revents & POLLPRI) != 0;
  for (int again = 0; ended && again < kPatienceMs / 100; ++again) {
    const auto offered = memory.segment->offer(memory.node);
    if (offered) return Json{{"booted", true}};
    if (offered.error().kind != ErrorClass::Unreachable) return tl::unexpected(offered.error());
    ::usleep(100000);
  }
  return Json{{"booted", ended}, {"offered", false}};
}

[[noreturn]] void stay() {
  for (;;) ::pause();
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
  if (memory.segment) {
    if (step == "notified") return await_notification(memory.segment->notifications());
    if (step == "booted") return offer_after_boot(memory);
  }
  if (step == "stay") stay();
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
  if (step == "traffic" && memory.connection) return traffic(memory, *seed);
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

Result<OwnedSegment> of_heap(const ThisHost& host, uint64_t bytes, const SegmentOptions& options) {
  const UniqueFd heap(::open("/dev/dma_heap/system", O_RDWR | O_CLOEXEC));
  if (!heap) return fail_errno("/dev/dma_heap/system");
  dma_heap_allocation_data wanted{};
  wanted.len = bytes;
  wanted.fd_flags = O_RDWR | O_CLOEXEC;
  if (::ioctl(heap.get(), DMA_HEAP_IOCTL_ALLOC, &wanted) != 0)
    return fail_errno("memory of a heap");
  return OwnedSegment::share(host, UniqueFd(static_cast<int>(wanted.fd)), options);
}

Result<> create(std::string_view what, std::span<char*> steps) {
  const size_t comma = what.find(',');
  const auto id = parse_node_id(what.substr(0, comma));
  if (!id) return tl::unexpected(id.error());
  Result<uint64_t> bytes = kPage;
  if (comma != std::string_view::npos) {
    const std::string_view rest = what.substr(comma + 1);
    bytes = number(rest.substr(0, rest.find(',')));
    if (!bytes) return tl::unexpected(bytes.error());
  }
  const auto host = ThisHost::open();
  if (!host) return tl::unexpected(host.error());
  const SegmentOptions options{
      .name = "lab", .huge = what.find(",huge") != std::string_view::npos, .notify = true};
  auto segment = what.find(",heap") != std::string_view::npos
                     ? of_heap(*host, *bytes, options)
                     : OwnedSegment::create(*host, *bytes, options);
  if (!segment) return tl::unexpected(std::move(segment).error());
  PCILEND_TRY(segment->offer(*id));
  std::cout << Json{{"id", to_string(segment->id())}}.dump() << std::endl;
  Memory memory{Words(segment->bytes()), nullptr, nullptr, &*segment, *id};
  return run_all(memory, steps);
}

Result<> many(std::string_view node, std::string_view how_many) {
  const auto id = parse_node_id(node);
  if (!id) return tl::unexpected(id.error());
  const auto count = number(how_many);
  if (!count) return tl::unexpected(count.error());
  const auto host = ThisHost::open();
  if (!host) return tl::unexpected(host.error());
  std::vector<OwnedSegment> segments;
  while (segments.size() < *count) {
    auto segment = OwnedSegment::create(*host, kPage);
    if (!segment) return tl::unexpected(std::move(segment).error());
    PCILEND_TRY(segment->offer(*id));
    segments.push_back(std::move(*segment));
  }
  std::cout << Json{{"made", segments.size()}}.dump() << std::endl;
  stay();
}

Result<std::vector<Connection>> connect_all(const ThisHost& host, std::string_view what,
                                            std::string_view how_many) {
  const auto id = parse_function_id(what);
  if (!id) return tl::unexpected(id.error());
  const auto count = number(how_many);
  if (!count) return tl::unexpected(count.error());
  std::vector<Connection> connections;
  while (connections.size() < *count) {
    auto connection = Connection::open(host, *id);
    if (!connection) return tl::unexpected(std::move(connection).error());
    connections.push_back(std::move(*connection));
  }
  return connections;
}

Result<> crowd(std::string_view what, std::string_view how_many) {
  const auto host = ThisHost::open();
  if (!host) return tl::unexpected(host.error());
  const auto connections = connect_all(*host, what, how_many);
  if (!connections) return tl::unexpected(connections.error());
  std::cout << Json{{"made", connections->size()}}.dump() << std::endl;
  stay();
}

Result<> leave(std::string_view what, std::string_view how_many, std::string_view function) {
  const auto id = parse_function_id(function);
  if (!id) return tl::unexpected(id.error());
  const auto host = ThisHost::open();
  if (!host) return tl::unexpected(host.error());
  const auto lease = Lease::borrow(*host, *id, "who leaves");
  if (!lease) return tl::unexpected(lease.error());
  auto connections = connect_all(*host, what, how_many);
  if (!connections) return tl::unexpected(connections.error());
  const size_t left = connections->size();
  connections->clear();
  const auto beside = DeviceBuffer::create(
      *lease, kPage,
      {.access = {.device_writes = false, .host_reads = false}, .place = Place::Function});
  std::cout
      << Json{{"left", left}, {"said", beside ? "not refused" : beside.error().message}}.dump()
      << std::endl;
  return {};
}

// Whatever is asked, with whatever descriptor: it is refused, or done and undone.
Result<> guess(std::string_view seed_text, std::string_view how_many) {
  const auto seed = number(seed_text);
  if (!seed) return tl::unexpected(seed.error());
  const auto count = number(how_many);
  if (!count) return tl::unexpected(count.error());
  const auto host = ThisHost::open();
  if (!host) return tl::unexpected(host.error());
  const auto client = open_client();
  if (!client) return tl::unexpected(client.error());
  auto segment = OwnedSegment::create(*host, kPage, {.notify = true});
  if (!segment) return tl::unexpected(std::move(segment).error());
  const auto node = host->node();
  if (!node) return tl::unexpected(node.error());

  std::minstd_rand random(static_cast<unsigned>(*seed));
  const auto below = [&](unsigned end) { return static_cast<uint32_t>(random() % end); };
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const UniqueFd memory(::memfd_create("guess", MFD_CLOEXEC));
  const UniqueFd directory(::open("/", O_DIRECTORY | O_CLOEXEC));
  const int fds[] = {segment->buffer(),
                     segment->fd(),
                     segment->notifications(),
                     null.get(),
                     memory.get(),
                     directory.get(),
                     -1,
                     -2,
                     0,
                     1000000,
                     INT_MAX};
  const auto fd = [&] { return fds[below(std::size(fds))]; };
  const auto id = [&] {
    const uint32_t nodes[] = {*node, 4, 8, 0, 65535, 70000};
    return FunctionId{nodes[below(std::size(nodes))] << 16 | below(4)};
  };
  const auto adapter = [&] {
    const char* const texts[] = {"", "", "0000:00:04.0", "00:04.0", "x", "ffff:ff:1f.7"};
    return std::string(texts[below(std::size(texts))]);
  };
  const char* const names[] = {"", "a name", "\x1b[2J", "\xff\xfe"};

  std::vector<CreatedSegment> created;
  std::vector<ConnectedSegment> connected;
  uint64_t done = 0;
  for (uint64_t round = 0; round < *count; ++round) {
    switch (below(6)) {
      case 0: {
        auto made = (*client)->create_segment(fd(), names[below(std::size(names))], fd());
        done += made.has_value();
        if (made) created.push_back(std::move(*made));
        break;
      }
      case 1:
        done += (*client)
                    ->offer_segment(id(), below(2) ? 4 + 4 * below(2) : below(70000), below(2) != 0,
                                    adapter())
                    .has_value();
        break;
      case 2:
        done += (*client)
                    ->withdraw_segment(id(), below(2) ? std::optional(below(70000)) : std::nullopt)
                    .has_value();
        break;
      case 3: {
        auto got = (*client)->connect_segment(id(), {below(2) != 0, below(2) != 0, adapter()});
        done += got.has_value();
        if (got) connected.push_back(std::move(*got));
        break;
      }
      case 4:
        done += (*client)->offered_segments().has_value();
        break;
      default:
        if (below(2) && !created.empty())
          created.erase(created.begin() + below(created.size()));
        else if (!connected.empty())
          connected.erase(connected.begin() + below(connected.size()));
    }
    if (created.size() > 8) created.clear();
    if (connected.size() > 8) connected.clear();
  }
  std::cout << Json{{"asked", *count}, {"done", done}}.dump() << std::endl;
  return {};
}

Result<> connect(std::string_view what, std::span<char*> steps) {
  const auto id = parse_function_id(what.substr(0, what.find(',')));
  if (!id) return tl::unexpected(id.error());
  const auto host = ThisHost::open();
  if (!host) return tl::unexpected(host.error());
  const auto client = open_client();
  if (!client) return tl::unexpected(client.error());
  ConnectOptions options;
  options.read_only = what.find(",ro") != std::string_view::npos;
  options.write_combining = what.find(",wc") != std::string_view::npos;
  auto connection = Connection::open(*host, *id, options);
  if (!connection) return tl::unexpected(std::move(connection).error());
  Memory memory{Words(connection->bytes()), client->get(), &*connection};
  return run_all(memory, steps);
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> arguments(argv, static_cast<size_t>(argc));
  const std::string_view verb = argc > 2 ? argv[1] : "";
  Result<> done = fail(ErrorClass::Usage, "see the top of its source");
  const bool four = argc == 4;
  if (verb == "many" && four) done = many(argv[2], argv[3]);
  if (verb == "crowd" && four) done = crowd(argv[2], argv[3]);
  if (verb == "guess" && four) done = guess(argv[2], argv[3]);
  if (verb == "leave" && argc == 5) done = leave(argv[2], argv[3], argv[4]);
  if (verb == "create") done = create(argv[2], arguments.subspan(3));
  if (verb == "own") done = own(argv[2], arguments.subspan(3));
  if (verb == "connect") done = connect(argv[2], arguments.subspan(3));
  if (done) return 0;
  std::cerr << done.error().message << "\n";
  return static_cast<int>(done.error().kind);
}
