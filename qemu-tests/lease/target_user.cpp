// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-target-user: leases an edu device, maps for it memory that is elsewhere, and says on
// stdout what came of each step, a JSON object on a line.
//
//	ID STEP...	the function
//
// Steps: connect SEGMENT[,ro]: one of another host, mapped for the function, too; export: a BAR, by
// /dev/pcilend-bar; registers: a BAR of another function, which is leased for that (`also ID`
// before; release: that lease ends); copy SEED: from this process's memory there and back, by the
// function; write SEED: a page there, whether it is still mapped or not; wipe: what is there, by
// the CPU; look SEED: is that page there; unmap; map: again, what is there; try: map it, and the
// words of the refusal; take: the exporter takes it away; lost: waits until the segment is;
// disturbed: until the epoch has changed; wait FILE: until that is there; state.
//
// Memory that the function only reads and this process only writes, where the library puts it: near
// BYTES: one more; is it zeroed; give SEED: stored there, and copied by the function to this
// process's own memory; poke: the function writes there; drop: the last one goes; insist BYTES: one
// that must be beside the function.
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
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
constexpr size_t kOwnBytes = 4 * Edu::kPage;
// What a buffer is for: the function reads it, this process writes it.
constexpr Access kGiven{.device_writes = false, .host_reads = false};
constexpr unsigned kBarExport = 0;  // of pcilend_bar.ko
constexpr unsigned kBarTake = 1;

Result<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size())
    return fail(ErrorClass::Usage, "'{}' is no number", text);
  return value;
}

uint64_t pattern(uint64_t seed, size_t at) {
  return (seed << 40 | at) * 0x9e3779b97f4a7c15;
}

// By words of eight bytes, each of which happens: it may be in a memory window.
void fill(std::span<std::byte> bytes, uint64_t seed) {
  auto* const words = reinterpret_cast<volatile uint64_t*>(bytes.data());
  for (size_t at = 0; at < bytes.size(); at += 8) words[at / 8] = pattern(seed, at);
}
bool has(std::span<std::byte> bytes, uint64_t seed) {
  const auto* const words = reinterpret_cast<const volatile uint64_t*>(bytes.data());
  for (size_t at = 0; at < bytes.size(); at += 8)
    if (words[at / 8] != pattern(seed, at)) return false;
  return true;
}

class User {
 public:
  static Result<User> begin(Client& client, FunctionId id) {
    auto edu = Edu::open(client, id);
    if (!edu) return tl::unexpected(std::move(edu).error());
    auto own = OwnedSegment::create(ThisHost(client), kOwnBytes, {.name = "own"});
    if (!own) return tl::unexpected(std::move(own).error());
    auto mapped = edu->lease().map(own->buffer());
    if (!mapped) return tl::unexpected(std::move(mapped).error());
    return User(client, std::move(*edu), std::move(*own), std::move(*mapped));
  }

  static bool takes_argument(std::string_view step) {
    return step == "connect" || step == "also" || step == "copy" || step == "write" ||
           step == "look" || step == "wait" || step == "near" || step == "give" || step == "insist";
  }
  Result<Json> step(std::string_view name, std::string_view argument) {
    if (name == "connect") return connect(argument);
    if (name == "also") return lease_another(argument);
    if (name == "registers") return take_registers();
    if (name == "wait") return await_file(std::string(argument));
    if (name == "export") return import_bar();
    if (name == "map") return map();
    if (name == "try") return Json{{"said", text_of(edu_.lease().map(buffer(), read_only_))}};
    if (name == "unmap") {
      target_.reset();
      return Json::object();
    }
    if (name == "release") {
      also_.reset();
      return Json::object();
    }
    if (name == "take") return take();
    if (name == "lost") return await_loss();
    if (name == "disturbed") return await_disturbance();
    if (name == "state") return state();
    if (name == "wipe") {
      std::ranges::fill(seen(), std::byte{});
      return Json::object();
    }
    if (name == "poke") return poke();
    if (name == "drop") {
      if (!near_.empty()) near_.pop_back();
      return Json::object();
    }
    const auto seed = number(argument);
    if (!seed) return tl::unexpected(seed.error());
    if (name == "near") return take_near(*seed);
    if (name == "insist")
      return Json{
          {"said", text_of(DeviceBuffer::create(edu_.lease(), *seed,
                                                {.access = kGiven, .place = Place::Function}))}};
    if (name == "give") return give(*seed);
    if (name == "copy") return copy(*seed);
    if (name == "write") return write(*seed);
    if (name == "look") return Json{{"there", has(seen().first(Edu::kPage), *seed)}};
    return fail(ErrorClass::Usage, "no step '{}'", name);
  }

 private:
  User(Client& client, Edu edu, OwnedSegment own, DeviceMemory mapped)
      : client_(&client),
        edu_(std::move(edu)),
        own_(std::move(own)),
        own_mapped_(std::move(mapped)) {}

  template <class T>
  static std::string text_of(const Result<T>& result) {
    return result ? "not refused" : result.error().message;
  }

  // What the function is to reach, and what this process sees of it.
  [[nodiscard]] int buffer() const {
    return connection_ ? connection_->buffer() : registers_ ? registers_->buffer() : bar_.get();
  }
  [[nodiscard]] std::span<std::byte> seen() const {
    return (connection_ ? connection_->bytes() : view_.bytes()).first(kOwnBytes);
  }

  Result<Json> map() {
    auto mapped = edu_.lease().map(buffer(), read_only_);
    if (!mapped) return tl::unexpected(std::move(mapped).error());
    target_.emplace(std::move(*mapped));
    address_ = target_->address();
    return Json{{"address", address_}};
  }

  Result<Json> connect(std::string_view what) {
    const size_t comma = what.find(',');
    const auto id = parse_function_id(what.substr(0, comma));
    if (!id) return tl::unexpected(id.error());
    read_only_ = what.substr(std::min(comma, what.size())) == ",ro";
    auto connection = Connection::open(ThisHost(*client_), *id, {.read_only = read_only_});
    if (!connection) return tl::unexpected(std::move(connection).error());
    target_.reset();
    connection_.emplace(std::move(*connection));
    return Json::object();
  }

  Result<Json> import_bar() {
    device_ = UniqueFd(::open("/dev/pcilend-bar", O_RDWR | O_CLOEXEC));
    if (!device_) return fail_errno("/dev/pcilend-bar");
    bar_ = UniqueFd(::ioctl(device_.get(), kBarExport));
    if (!bar_) return fail_errno("export of a BAR");
    auto view = Mapping::map(bar_.get(), 0, kOwnBytes, true);
    if (!view) return tl::unexpected(std::move(view).error());
    view_ = std::move(*view);
    return Json::object();
  }
  Result<Json> take() {
    if (::ioctl(device_.get(), kBarTake) < 0) return fail_errno("taking the BAR");
    return Json::object();
  }

  Result<Json> lease_another(std::string_view text) {
    const auto id = parse_function_id(text);
    if (!id) return tl::unexpected(id.error());
    auto lease = Lease::borrow(ThisHost(*client_), *id, "its memory");
    if (!lease) return tl::unexpected(std::move(lease).error());
    also_.emplace(std::move(*lease));
    return Json::object();
  }
  // The last memory BAR is the one with memory behind it.
  Result<Json> take_registers() {
    for (uint32_t bar = 6; bar-- > 0;) {
      auto registers = also_->bar(bar, 0, kOwnBytes);
      if (!registers) continue;
      registers_.emplace(std::move(*registers));
      auto view = Mapping::map(registers_->buffer(), 0, kOwnBytes, true);
      if (!view) return tl::unexpected(std::move(view).error());
      view_ = std::move(*view);
      return Json{{"bar", bar}};
    }
    return fail(ErrorClass::NotFound, "it has no BAR of {} bytes", kOwnBytes);
  }

  Result<Json> take_near(uint64_t bytes) {
    auto made = DeviceBuffer::create(edu_.lease(), bytes, {.access = kGiven});
    if (!made) return tl::unexpected(std::move(made).error());
    near_.push_back(std::move(*made));
    const auto all = near_.back().bytes();
    const auto* const words = reinterpret_cast<const volatile uint64_t*>(all.data());
    bool zeroed = true;
    for (size_t at = 0; at < all.size(); at += Edu::kPage) zeroed &= words[at / 8] == 0;
    return Json{{"beside", near_.back().place() == Place::Function},
                {"remark", near_.back().remark()},
                {"zeroed", zeroed}};
  }
  Result<Json> give(uint64_t seed) {
    if (near_.empty()) return fail(ErrorClass::Usage, "give: near first");
    const auto bytes = near_.back().bytes().first(kOwnBytes);
    fill(bytes, seed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (size_t at = 0; at < kOwnBytes; at += Edu::kPage) {
      PCILEND_TRY(edu_.fetch(near_.back().address() + at));
      PCILEND_TRY(edu_.deliver(own_mapped_.address() + at));
    }
    return Json{{"given", has(own_.bytes(), seed)}};
  }
  // Its own page has something else.
  Result<Json> poke() {
    if (near_.empty()) return fail(ErrorClass::Usage, "poke: near first");
    const auto* const first =
        reinterpret_cast<const volatile uint64_t*>(near_.back().bytes().data());
    const uint64_t before = *first;
    fill(own_.bytes(), 77);
    PCILEND_TRY(edu_.fetch(own_mapped_.address()));
    PCILEND_TRY(edu_.deliver(near_.back().address()));
    return Json{{"changed", *first != before}};
  }

  Result<Json> copy(uint64_t seed) {
    fill(own_.bytes(), seed);
    for (size_t at = 0; at < kOwnBytes; at += Edu::kPage) {
      PCILEND_TRY(edu_.fetch(own_mapped_.address() + at));
      PCILEND_TRY(edu_.deliver(address_ + at));
    }
    const bool there = has(seen(), seed);
    std::ranges::fill(own_.bytes(), std::byte{});
    for (size_t at = 0; at < kOwnBytes; at += Edu::kPage) {
      PCILEND_TRY(edu_.fetch(address_ + at));
      PCILEND_TRY(edu_.deliver(own_mapped_.address() + at));
    }
    return Json{{"there", there}, {"back", has(own_.bytes(), seed)}};
  }

  // To where it was, too.
  Result<Json> write(uint64_t seed) {
    fill(own_.bytes(), seed);
    PCILEND_TRY(edu_.fetch(own_mapped_.address()));
    PCILEND_TRY(edu_.deliver(address_));
    return Json::object();
  }

  Result<Json> await_loss() {
    std::cout << Json{{"step", "waiting"}}.dump() << std::endl;
    pollfd wait{connection_->fd(), 0, 0};
    if (::poll(&wait, 1, kPatienceMs) < 0) return fail_errno("poll");
    return Json{{"lost", connection_->lost()}};
  }
  Result<Json> await_disturbance() {
    std::cout << Json{{"step", "waiting"}}.dump() << std::endl;
    for (int ms = 0; ms < kPatienceMs && edu_.lease().epoch() == 0; ms += 10)
      ::poll(nullptr, 0, 10);
    return state();
  }
  static Result<Json> await_file(const std::string& path) {
    std::cout << Json{{"step", "waiting"}}.dump() << std::endl;
    for (int ms = 0; ms < kPatienceMs; ms += 10) {
      if (::access(path.c_str(), F_OK) == 0) return Json::object();
      ::poll(nullptr, 0, 10);
    }
    return fail(ErrorClass::Unreachable, "{} does not come", path);
  }

  Result<Json> state() {
    return Json{{"epoch", edu_.lease().epoch()}, {"over", edu_.lease().over()}};
  }

  Client* client_;
  Edu edu_;
  OwnedSegment own_;
  DeviceMemory own_mapped_;
  std::optional<Lease> also_;
  std::optional<Registers> registers_;
  std::optional<Connection> connection_;
  UniqueFd device_;
  UniqueFd bar_;
  Mapping view_;
  bool read_only_ = false;
  std::vector<DeviceBuffer> near_;  // ends before the lease
  std::optional<DeviceMemory> target_;
  uint64_t address_ = 0;
};

Result<> use(std::string_view what, std::span<char*> steps) {
  const auto id = parse_function_id(what);
  if (!id) return tl::unexpected(id.error());
  const auto client = open_client();
  if (!client) return tl::unexpected(client.error());
  auto user = User::begin(**client, *id);
  if (!user) return tl::unexpected(std::move(user).error());
  for (size_t at = 0; at < steps.size(); ++at) {
    const std::string name = steps[at];
    std::string argument;
    if (User::takes_argument(name)) {
      if (++at == steps.size()) return fail(ErrorClass::Usage, "{}: of what?", name);
      argument = steps[at];
    }
    auto said = user->step(name, argument);
    if (!said) return tl::unexpected(std::move(said).error().in(name));
    (*said)["step"] = name;
    std::cout << said->dump() << std::endl;
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> arguments(argv, static_cast<size_t>(argc));
  const Result<> done = argc > 2
                            ? use(argv[1], arguments.subspan(2))
                            : fail(ErrorClass::Usage, "usage: {} ID STEP...", argc ? argv[0] : "");
  if (done) return 0;
  std::cerr << done.error().message << "\n";
  return static_cast<int>(done.error().kind);
}
