// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-lease-user: leases an edu device, does with it what a scenario asks for, and says on
// stdout what came of it, a JSON object for each step.
//
//	ID[,SLICE] STEP...	a function of this host; bytes of its slice
//
// Steps: look: what it is; factorial: by an interrupt; map BYTES: two segments, the first for
// reading; copy: each page of the first to the second, by the device; overwrite: it tries to write
// to the first; hints: where a buffer is that it only reads, and that it tries to write to; forge
// ADDRESS: it writes a word there, as one that raises an interrupt; unmap; stale: it tries to write
// where the second was; remap TIMES: maps and unmaps it; time BYTES: how long that takes of other
// memory, which is a huge page if it is as large; refused: all that is not to be had; run: copies
// until something fails; over, recalled: waits for that; disturbed: waits until the epoch is
// another one than at first; ones: what is left of its registers; state.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "edu.h"
#include "pcilend/device_buffer.h"
#include "pcilend/segment.h"

namespace {

using namespace pcilend;
using Json = nlohmann::json;

constexpr int kPatienceMs = 120000;

Result<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size())
    return fail(ErrorClass::Usage, "'{}' is no number", text);
  return value;
}

// Seeds differ, and so do all words.
void fill(const OwnedSegment& segment, uint64_t seed) {
  const auto bytes = segment.bytes();
  for (size_t at = 0; at < bytes.size(); at += sizeof seed) {
    const uint64_t word = (seed << 40 | at) * 0x9e3779b97f4a7c15;
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
}

Result<uint64_t> messages(Client& client) {
  const auto links = client.links();
  if (!links) return tl::unexpected(links.error());
  uint64_t sum = 0;
  for (const auto& link : *links) sum += link.tx_messages + link.rx_messages;
  return sum;
}

class User {
 public:
  static Result<User> begin(Client& client, FunctionId id, uint64_t slice) {
    auto edu = Edu::open(client, id, slice);
    if (!edu) return tl::unexpected(std::move(edu).error());
    return User(client, id, slice, std::move(*edu));
  }

  Result<Json> step(std::string_view name, uint64_t argument) {
    if (name == "look")
      return Json{{"identification", edu_.identification()}, {"inverted", edu_.invert(1)}};
    if (name == "factorial") return factorial();
    if (name == "map") return map(argument);
    if (name == "copy") return copy();
    if (name == "overwrite") return overwrite();
    if (name == "forge") return forge(argument);
    if (name == "hints") return hints();
    if (name == "unmap") return unmap();
    if (name == "stale") return stale();
    if (name == "remap") return remap(argument);
    if (name == "time") return time(argument);
    if (name == "refused") return refused();
    if (name == "run") return run();
    if (name == "over" || name == "recalled") return await();
    if (name == "disturbed") return await_disturbance();
    if (name == "ones") return ones();
    if (name == "state") return state();
    return fail(ErrorClass::Usage, "no step '{}'", name);
  }
  static bool takes_argument(std::string_view step) {
    return step == "map" || step == "remap" || step == "forge" || step == "time";
  }

 private:
  User(Client& client, FunctionId id, uint64_t slice, Edu edu)
      : client_(&client), id_(id), slice_(slice), edu_(std::move(edu)) {}

  Result<Json> factorial() {
    const auto product = edu_.factorial(5);
    if (!product) return tl::unexpected(product.error());
    return Json{{"product", *product}};
  }

  Result<Json> map(uint64_t bytes) {
    for (auto* segment : {&from_, &to_}) {
      auto made = OwnedSegment::create(ThisHost(*client_), bytes, {.name = "edu"});
      if (!made) return tl::unexpected(std::move(made).error());
      segment->emplace(std::move(*made));
    }
    fill(*from_, 1);
    fill(*to_, 2);
    auto source = edu_.lease().map(from_->buffer(), true);
    if (!source) return tl::unexpected(std::move(source).error());
    auto target = edu_.lease().map(to_->buffer());
    if (!target) return tl::unexpected(std::move(target).error());
    source_.emplace(std::move(*source));
    target_.emplace(std::move(*target));
    return Json{{"addresses", {source_->address(), target_->address()}}};
  }

  Result<Json> copy() {
    const uint64_t before = edu_.interrupts();
    size_t pages = 0;
    for (size_t at = 0; at < from_->bytes().size(); at += Edu::kPage, ++pages) {
      PCILEND_TRY(edu_.fetch(source_->address() + at));
      PCILEND_TRY(edu_.deliver(target_->address() + at));
    }
    return Json{{"pages", pages},
                {"same", std::ranges::equal(from_->bytes(), to_->bytes())},
                {"interrupts", edu_.interrupts() - before}};
  }

  // Does the device change that page of a segment?
  Result<Json> try_to_write(const OwnedSegment& segment, uint64_t address) {
    const std::vector<std::byte> before(segment.bytes().begin(), segment.bytes().end());
    PCILEND_TRY(edu_.deliver(address));
    return Json{{"changed", !std::ranges::equal(before, segment.bytes())}};
  }
  // Its own page has what is nowhere in the first segment.
  Result<Json> overwrite() {
    fill(*to_, 3);
    PCILEND_TRY(edu_.fetch(target_->address()));
    return try_to_write(*from_, source_->address());
  }
  Result<Json> stale() { return try_to_write(*to_, former_); }

  Result<Json> forge(uint64_t address) {
    const uint32_t data = 0x41;  // a vector, where nothing else says which
    std::memcpy(from_->bytes().data(), &data, sizeof data);
    PCILEND_TRY(edu_.fetch(source_->address()));
    PCILEND_TRY(edu_.deliver(address, sizeof data));
    return Json::object();
  }

  Result<Json> hints() {
    BufferOptions options{{.device_writes = false, .host_reads = false}};
    auto commands = DeviceBuffer::create(edu_.lease(), Edu::kPage, options);
    if (!commands) return tl::unexpected(std::move(commands).error());
    PCILEND_TRY(edu_.fetch(source_->address()));
    PCILEND_TRY(edu_.deliver(commands->address()));
    options.place = Place::Function;
    const auto beside = DeviceBuffer::create(edu_.lease(), Edu::kPage, options);
    return Json{{"beside", commands->place() == Place::Function},
                {"remark", commands->remark()},
                {"insisted", text_of(beside)},
                {"changed", std::ranges::any_of(commands->bytes(),
                                                [](std::byte b) { return b != std::byte{}; })}};
  }

  Result<Json> unmap() {
    former_ = target_->address();
    source_.reset();
    target_.reset();
    return Json::object();
  }

  Result<Json> remap(uint64_t times) {
    std::optional<uint64_t> address;
    for (uint64_t i = 0; i < times; ++i) {
      const auto mapped = edu_.lease().map(to_->buffer());
      if (!mapped) return tl::unexpected(mapped.error());
      if (address && *address != mapped->address())
        return fail(ErrorClass::Failure, "{:#x} is not free any more", *address);
      address = mapped->address();
    }
    return Json{{"times", times}};
  }

  static uint64_t median(std::vector<uint64_t> values) {
    std::ranges::sort(values);
    return values.at(values.size() / 2);
  }
  Result<Json> time(uint64_t bytes) {
    using Clock = std::chrono::steady_clock;
    constexpr int kTimes = 500;
    const auto memory = OwnedSegment::create(ThisHost(*client_), bytes,
                                             {.name = "time", .huge = bytes >= uint64_t{2} << 20});
    if (!memory) return tl::unexpected(memory.error());
    std::vector<uint64_t> map_ns;
    std::vector<uint64_t> unmap_ns;
    for (int i = 0; i < kTimes; ++i) {
      const auto start = Clock::now();
      auto mapped = edu_.lease().map(memory->buffer());
      const auto there = Clock::now();
      if (!mapped) return tl::unexpected(std::move(mapped).error());
      { const DeviceMemory ends = std::move(*mapped); }
      map_ns.push_back(static_cast<uint64_t>((there - start).count()));
      unmap_ns.push_back(static_cast<uint64_t>((Clock::now() - there).count()));
    }
    return Json{{"times", kTimes}, {"map_ns", median(map_ns)}, {"unmap_ns", median(unmap_ns)}};
  }

  // What a request that must be refused was answered with.
  template <class T>
  static std::string text_of(const Result<T>& result) {
    return result ? "not refused" : result.error().message;
  }

  Result<Json> refused() {
    const Lease& lease = edu_.lease();
    const ThisHost host(*client_);
    const UniqueFd memory(::memfd_create("lease-user", MFD_CLOEXEC));
    auto large = OwnedSegment::create(host, 8192, {.name = "large"});
    if (!large) return tl::unexpected(std::move(large).error());
    const auto bar = lease.bar(0, 0, Edu::kPage);
    if (!bar) return tl::unexpected(bar.error());
    Json said = {
        {"leased twice", text_of(Lease::borrow(host, id_, "another"))},
        {"an unknown function", text_of(Lease::borrow(host, FunctionId{id_.value | 0xfff}, "x"))},
        {"a function of another host", text_of(Lease::borrow(host, FunctionId{0xc0001}, "x"))},
        {"an odd slice", text_of(Lease::borrow(host, id_, "x", 12288))},
        {"memory for a lease", text_of(client_->lease_bar(memory.get(), 0, 0, 4096))},
        {"no lease", text_of(client_->lease_unmap(-1, 0))},
        {"BAR 4", text_of(lease.bar(4, 0, 4096))},
        {"half a page", text_of(lease.bar(0, 0, 2048))},
        {"behind the BAR", text_of(lease.bar(0, 1 << 20, 4096))},
        {"around the end", text_of(client_->lease_bar(lease.fd(), 0, 4096, ~uint64_t{0xfff}))},
        {"a memfd", text_of(lease.map(memory.get()))},
        {"a BAR for the function", text_of(lease.map(bar->buffer()))},
        {"vector 7", text_of(lease.interrupt(7))},
        {"a memfd to raise", text_of(client_->lease_interrupt(lease.fd(), 0, memory.get()))},
        {"what is not mapped", text_of(client_->lease_unmap(lease.fd(), 4096))},
    };
    if (slice_ < 8192) said["more than the slice"] = text_of(lease.map(large->buffer()));
    return said;
  }

  Result<Json> run() {
    std::cout << Json{{"step", "running"}}.dump() << std::endl;
    for (;;) {
      const auto copied = copy();
      if (!copied) return Json{{"ended", copied.error().message}};
    }
  }

  Result<Json> await() {
    pollfd wait{edu_.lease().fd(), POLLPRI, 0};
    std::cout << Json{{"step", "waiting"}}.dump() << std::endl;
    if (::poll(&wait, 1, kPatienceMs) < 0) return fail_errno("poll");
    return Json{{"over", (wait.revents & POLLHUP) != 0},
                {"recalled", (wait.revents & POLLPRI) != 0}};
  }

  Result<Json> await_disturbance() {
    std::cout << Json{{"step", "waiting"}}.dump() << std::endl;
    for (int ms = 0; ms < kPatienceMs && edu_.lease().epoch() == 0; ms += 10)
      ::poll(nullptr, 0, 10);
    return state();
  }

  Result<Json> ones() {
    edu_.scribble();
    const bool ones = edu_.reads_ones();
    return Json{{"ones", ones},
                {"map", text_of(edu_.lease().map(to_->buffer()))},
                {"bar", text_of(edu_.lease().bar(0, 0, Edu::kPage))},
                {"interrupt", text_of(edu_.lease().interrupt(0))}};
  }

  Result<Json> state() {
    return Json{{"epoch", edu_.lease().epoch()},
                {"over", edu_.lease().over()},
                {"recalled", edu_.lease().recalled()}};
  }

  Client* client_;
  FunctionId id_;
  uint64_t slice_;
  std::optional<OwnedSegment> from_;
  std::optional<OwnedSegment> to_;
  Edu edu_;
  std::optional<DeviceMemory> source_;
  std::optional<DeviceMemory> target_;
  uint64_t former_ = 0;
};

Result<> use(std::string_view what, std::span<char*> steps) {
  const size_t comma = what.find(',');
  const auto id = parse_function_id(what.substr(0, comma));
  if (!id) return tl::unexpected(id.error());
  uint64_t slice = Lease::kSlice;
  if (comma != std::string_view::npos) {
    const auto bytes = number(what.substr(comma + 1));
    if (!bytes) return tl::unexpected(bytes.error());
    slice = *bytes;
  }
  const auto client = open_client();
  if (!client) return tl::unexpected(client.error());
  auto user = User::begin(**client, *id, slice);
  if (!user) return tl::unexpected(std::move(user).error());
  for (size_t at = 0; at < steps.size(); ++at) {
    const std::string name = steps[at];
    uint64_t argument = 0;
    if (User::takes_argument(name)) {
      if (++at == steps.size()) return fail(ErrorClass::Usage, "{}: how many?", name);
      const auto value = number(steps[at]);
      if (!value) return tl::unexpected(value.error());
      argument = *value;
    }
    const auto before = messages(**client);
    if (!before) return tl::unexpected(before.error());
    auto said = user->step(name, argument);
    if (!said) return tl::unexpected(std::move(said).error().in(name));
    const auto after = messages(**client);
    if (!after) return tl::unexpected(after.error());
    (*said)["step"] = name;
    (*said)["messages"] = *after - *before;
    std::cout << said->dump() << std::endl;
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> arguments(argv, static_cast<size_t>(argc));
  const Result<> done =
      argc > 2 ? use(argv[1], arguments.subspan(2))
               : fail(ErrorClass::Usage, "usage: {} ID[,SLICE] STEP...", argc ? argv[0] : "");
  if (done) return 0;
  std::cerr << done.error().message << "\n";
  return static_cast<int>(done.error().kind);
}
