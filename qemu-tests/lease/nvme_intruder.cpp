// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-nvme-intruder: a user of an NVMe drive that does to others what it can, or whom that is
// done to, and says on stdout what came of each step, a JSON object.
//
//	lease ID COUNT		has the drive alone, and asks for so many pages of BAR 0
//	client ID COUNT		shares it, and asks for them
//	join ID STEP...		shares it, and has a pair of queues (pcilend-nvme-manager)
//
// Steps: buffer: a page for the drive to write to; changed: has it?; write BLOCK SEED, check BLOCK
// SEED: a block of its buffer; strike BLOCK ADDRESS: has the drive write a block to that device
// address; ring QUEUE TAIL: the doorbell of that submission queue, whose ever it is; struck: waits
// for an interrupt; lost: waits until its queue is; wait FILE.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "pcilend/lease.h"
#include "pcilend/nvme/drive.h"
#include "pcilend/nvme/queue_pair.h"
#include "pcilend/result.h"

namespace {

using namespace pcilend;
using namespace std::chrono_literals;
using Json = nlohmann::json;

constexpr std::chrono::milliseconds kPatience = 2min;
constexpr size_t kDoorbells = 0x1000;
constexpr uint32_t kDepth = 3;  // a ring of four entries

void say(const Json& what) {
  std::cout << what.dump() << std::endl;
}

Result<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size())
    return fail(ErrorClass::Usage, "'{}' is no number", text);
  return value;
}

template <class T>
std::string text_of(const Result<T>& result) {
  return result ? "not refused" : result.error().message;
}

class Client {
 public:
  static Result<Client> join(const ThisHost& host, FunctionId id) {
    auto drive = nvme::Drive::join(host, id, "intruder", {.slice = 1 << 20, .interrupt = true});
    if (!drive) return tl::unexpected(std::move(drive).error());
    auto space = (*drive)->name_space(1);
    if (!space) return tl::unexpected(std::move(space).error());
    auto pair = nvme::QueuePair::create((*drive)->device(), (*drive)->queues(),
                                        {.depth = kDepth, .vector = (*drive)->vector()});
    if (!pair) return tl::unexpected(std::move(pair).error());
    auto buffer = (*drive)->device().allocate(nvme::kPage, {});
    if (!buffer) return tl::unexpected(std::move(buffer).error());
    return Client(std::move(*drive), *space, std::move(*buffer), std::move(*pair));
  }

  static size_t arguments_of(std::string_view step) {
    static const std::map<std::string_view, size_t> kSteps = {
        {"write", 2}, {"check", 2}, {"strike", 2}, {"ring", 2}};
    const auto found = kSteps.find(step);
    return found == kSteps.end() ? 0 : found->second;
  }

  Result<Json> step(std::string_view name, const std::vector<uint64_t>& numbers) {
    if (name == "buffer") return Json{{"address", buffer_->address()}};
    if (name == "changed") return Json{{"changed", changed()}};
    if (name == "struck") return await_interrupt();
    if (name == "lost") return await_loss();
    if (name == "write") {
      fill(numbers[1]);
      return transfer(&nvme::QueuePair::write, numbers[0], buffer_->address());
    }
    if (name == "check") return check(numbers[0], numbers[1]);
    if (name == "strike") return transfer(&nvme::QueuePair::read, numbers[0], numbers[1]);
    if (name == "ring") return ring(numbers[0], numbers[1]);
    return fail(ErrorClass::Usage, "no step '{}'", name);
  }

 private:
  using Transfer = Result<std::optional<uint32_t>> (nvme::QueuePair::*)(const nvme::NamespaceInfo&,
                                                                        uint64_t, uint32_t,
                                                                        uint64_t);

  Client(std::unique_ptr<nvme::Drive> drive, const nvme::NamespaceInfo& space,
         std::unique_ptr<nvme::Memory> buffer, std::unique_ptr<nvme::QueuePair> pair)
      : drive_(std::move(drive)),
        space_(space),
        buffer_(std::move(buffer)),
        pair_(std::move(pair)) {}

  [[nodiscard]] bool changed() const {
    return std::ranges::any_of(buffer_->bytes(), [](std::byte b) { return b != std::byte{}; });
  }

  void fill(uint64_t seed) const {
    for (size_t at = 0; at < space_.block_bytes; at += sizeof seed) {
      const uint64_t word = (seed << 40 | at) * 0x9e3779b97f4a7c15;
      std::memcpy(buffer_->bytes().data() + at, &word, sizeof word);
    }
  }

  Result<Json> transfer(Transfer how, uint64_t block, uint64_t address) {
    const auto slot = ((*pair_).*how)(space_, block, 1, address);
    if (!slot) return tl::unexpected(slot.error());
    const auto done = pair_->wait(kPatience);
    if (!done) return tl::unexpected(done.error());
    return Json{{"status", done->status}};
  }

  Result<Json> check(uint64_t block, uint64_t seed) {
    auto said = transfer(&nvme::QueuePair::read, block, buffer_->address());
    if (!said) return said;
    const auto bytes = buffer_->bytes().first(space_.block_bytes);
    const std::vector<std::byte> found(bytes.begin(), bytes.end());
    fill(seed);
    (*said)["same"] = std::ranges::equal(found, bytes);
    return said;
  }

  Result<Json> ring(uint64_t queue, uint64_t tail) {
    drive_->device().store(kDoorbells + 2 * sizeof(uint32_t) * queue, static_cast<uint32_t>(tail));
    return Json{{"queue", queue}};
  }

  Result<Json> await_interrupt() {
    say({{"step", "waiting"}});
    const uint64_t before = pair_->interrupts();
    pollfd wait{pair_->event(), POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>(kPatience.count())) < 0) return fail_errno("poll");
    return Json{{"more", pair_->interrupts() - before}};
  }

  // With nothing under way it has nothing to be told, but for what it has not asked.
  Result<Json> await_loss() {
    say({{"step", "waiting"}});
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < until) {
      const auto done = pair_->take();
      if (!done) return Json{{"lost", done.error().message}};
      if (*done) return fail(ErrorClass::Failure, "something is done that was not asked");
      std::this_thread::sleep_for(10ms);
    }
    return Json{{"lost", ""}};
  }

  std::unique_ptr<nvme::Drive> drive_;
  nvme::NamespaceInfo space_;
  std::unique_ptr<nvme::Memory> buffer_;
  std::unique_ptr<nvme::QueuePair> pair_;
};

Result<Json> wait(const std::string& file) {
  say({{"step", "waiting"}});
  const auto there = [&] { return ::access(file.c_str(), F_OK) == 0; };
  for (auto left = kPatience; left > 0ms && !there(); left -= 10ms)
    std::this_thread::sleep_for(10ms);
  return Json{{"there", there()}};
}

Result<> ask_for_pages(const Result<Lease>& lease, const char* count) {
  if (!lease) return tl::unexpected(lease.error());
  const auto pages = number(count);
  if (!pages) return tl::unexpected(pages.error());
  Json said = Json::object();
  for (uint64_t page = 0; page < *pages; ++page)
    said[std::to_string(page)] = text_of(lease->bar(0, page * nvme::kPage, nvme::kPage));
  say({{"step", "pages"}, {"pages", said}});
  return {};
}

Result<> join(const ThisHost& host, FunctionId id, std::span<char*> steps) {
  auto client = Client::join(host, id);
  if (!client) return tl::unexpected(std::move(client).error());
  for (size_t at = 0; at < steps.size();) {
    const std::string name = steps[at++];
    const size_t count = name == "wait" ? 1 : Client::arguments_of(name);
    if (steps.size() - at < count) return fail(ErrorClass::Usage, "{}: what?", name);
    const auto arguments = steps.subspan(at, count);
    at += count;
    Result<Json> said = Json::object();
    if (name == "wait") {
      said = wait(arguments[0]);
    } else {
      std::vector<uint64_t> numbers;
      for (const char* text : arguments) {
        const auto value = number(text);
        if (!value) return tl::unexpected(value.error());
        numbers.push_back(*value);
      }
      said = client->step(name, numbers);
    }
    if (!said) return tl::unexpected(std::move(said).error().in(name));
    (*said)["step"] = name;
    say(*said);
  }
  return {};
}

Result<> use(std::string_view role, std::string_view what, std::span<char*> steps) {
  const auto id = parse_function_id(what);
  if (!id) return tl::unexpected(id.error());
  say({{"step", "begun"}, {"pid", ::getpid()}});
  const auto host = ThisHost::open();
  if (!host) return tl::unexpected(host.error());
  if (role == "lease") return ask_for_pages(Lease::borrow(*host, *id, "intruder"), steps[0]);
  if (role == "client") return ask_for_pages(Lease::join(*host, *id, "intruder"), steps[0]);
  if (role == "join") return join(*host, *id, steps);
  return fail(ErrorClass::Usage, "lease, client or join, not '{}'", role);
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> arguments(argv, static_cast<size_t>(argc));
  const Result<> done = argc > 3 ? use(argv[1], argv[2], arguments.subspan(3))
                                 : fail(ErrorClass::Usage, "usage: {} lease|client|join ID STEP...",
                                        argc ? argv[0] : "");
  if (done) return 0;
  std::cerr << done.error().message << "\n";
  return static_cast<int>(done.error().kind);
}
