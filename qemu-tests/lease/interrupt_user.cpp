// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-interrupt-user: an NVMe drive of which clients have interrupts, and nothing else. Its
// manager makes a pair of queues for each interrupt that a client wants to see, in memory of its
// own, and has the drive complete a command there. What came of each step is said on stdout, a JSON
// object.
//
//	manage ID CLIENTS,VECTORS	leases it, shares it, and serves until the lease is over
//	join ID VECTORS STEP...		becomes a client of it
//
// Steps: listen N, deafen N: interrupt N is wanted, or no longer; try N: it is wanted, and the
// words of the refusal; raise N: has the manager raise it (which ends when one that is wanted has
// come); counts: how many have come of each; await COUNT: until as many have come of number 0;
// refused; wait FILE.
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "pcilend/client.h"
#include "pcilend/lease.h"
#include "pcilend/nvme/command.h"
#include "pcilend/nvme/controller.h"
#include "pcilend/result.h"

namespace {

using namespace pcilend;
using Json = nlohmann::json;

constexpr int kPatienceMs = 120000;
constexpr size_t kRegisterBytes = 0x2000;  // and the first page of doorbells

void say(const Json& what) {
  std::cout << what.dump() << std::endl;
}

Result<std::vector<uint32_t>> numbers(std::string_view text) {
  std::vector<uint32_t> values;
  for (;;) {
    auto& value = values.emplace_back();
    const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end.ec != std::errc()) return fail(ErrorClass::Usage, "'{}' is no number", text);
    text.remove_prefix(static_cast<size_t>(end.ptr - text.data()));
    if (text.empty()) return values;
    text.remove_prefix(1);
  }
}

Mail letter(uint32_t client, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {client, {bytes.begin(), bytes.end()}};
}

class BufferMemory final : public nvme::Memory {
 public:
  explicit BufferMemory(DeviceBuffer buffer) : buffer_(std::move(buffer)) {}
  std::span<std::byte> bytes() override { return buffer_.bytes(); }
  [[nodiscard]] uint64_t address() const override { return buffer_.address(); }

 private:
  DeviceBuffer buffer_;
};

// The drive in its manager's hands.
class Drive final : public nvme::Device {
 public:
  Drive(const Lease& lease, Registers registers)
      : lease_(lease), registers_(std::move(registers)) {}

  [[nodiscard]] std::string name() const override { return to_string(lease_.info().id); }
  [[nodiscard]] uint32_t load(size_t offset) const override {
    return registers_.load<uint32_t>(offset);
  }
  void store(size_t offset, uint32_t value) override { registers_.store(offset, value); }
  [[nodiscard]] size_t register_bytes() const override { return registers_.size(); }
  Result<std::unique_ptr<nvme::Memory>> allocate(size_t bytes, const Access& access) override {
    auto buffer = DeviceBuffer::create(lease_, bytes, {access});
    if (!buffer) return tl::unexpected(std::move(buffer).error());
    return std::make_unique<BufferMemory>(std::move(*buffer));
  }
  Result<std::span<std::byte>> bar(uint32_t, uint64_t, size_t) override {
    return fail(ErrorClass::Unsupported, "this one needs registers only");
  }
  Result<UniqueFd> interrupt(uint32_t vector) override { return lease_.interrupt(vector); }
  Result<> end_interrupt(uint32_t vector) override { return lease_.end_interrupt(vector); }
  [[nodiscard]] uint64_t epoch() const override { return lease_.epoch(); }
  [[nodiscard]] int fd() const override { return lease_.fd(); }

 private:
  const Lease& lease_;
  Registers registers_;
};

// A pair of queues whose completions raise one interrupt.
struct Pair {
  static constexpr uint32_t kEntries = 64;

  nvme::QueueGrant grant;
  std::unique_ptr<nvme::Memory> submission;
  std::unique_ptr<nvme::Memory> completion;
  uint32_t sent = 0;
};

class Manager {
 public:
  static Result<> run(Client& client, FunctionId id, const std::vector<uint32_t>& policy) {
    auto lease = Lease::borrow(ThisHost(client), id, "nvme's manager");
    if (!lease) return tl::unexpected(std::move(lease).error());
    auto registers = lease->bar(0, 0, kRegisterBytes);
    if (!registers) return tl::unexpected(std::move(registers).error());
    Drive drive(*lease, std::move(*registers));
    Manager manager(*lease, drive);
    PCILEND_TRY(manager.start());
    PCILEND_TRY(lease->share({.clients = policy.at(0), .vectors = policy.at(1)}));
    return manager.serve();
  }

 private:
  Manager(const Lease& lease, Drive& drive) : lease_(lease), drive_(drive) {}

  // Anew, if somebody has reset it.
  Result<> start() {
    if (controller_ && !controller_->failed()) return {};
    pairs_.clear();
    controller_.reset();
    auto controller = nvme::Controller::start(drive_);
    if (!controller) return tl::unexpected(std::move(controller).error());
    controller_ = std::move(*controller);
    return {};
  }

  Result<> serve() {
    say({{"step", "serving"}});
    for (;;) {
      pollfd poll{lease_.fd(), POLLIN, 0};
      if (::poll(&poll, 1, kPatienceMs) < 0) return fail_errno("poll");
      if (poll.revents & POLLHUP) return {};
      const auto notice = lease_.next_client();
      if (!notice) return tl::unexpected(notice.error());
      if (*notice) PCILEND_TRY(hear_of(**notice));
      const auto mail = lease_.next_mail();
      if (!mail) return tl::unexpected(mail.error());
      if (*mail) PCILEND_TRY(answer(**mail));
    }
  }

  Result<> hear_of(const ClientNotice& notice) {
    static constexpr const char* kNews[] = {"joined", "gone", "quarantined"};
    say({{"step", kNews[notice.news]},
         {"lease", notice.lease},
         {"node", notice.node},
         {"vector", notice.vector},
         {"vectors", notice.vectors}});
    vectors_[notice.lease] = notice.vector;
    if (notice.news == PCILEND_NEWS_JOINED) return {};
    for (auto& [vector, pair] : pairs_)
      if (vector >= notice.vector && vector < notice.vector + notice.vectors)
        controller_->remove(pair.grant.id);
    std::erase_if(pairs_, [&](const auto& pair) {
      return pair.first >= notice.vector && pair.first < notice.vector + notice.vectors;
    });
    PCILEND_TRY(lease_.cleared(notice));
    // None of them goes anywhere now, whatever the function does.
    for (uint32_t i = 0; i < notice.vectors; ++i) PCILEND_TRY(raise(notice.vector + i));
    say({{"step", "raised"}, {"lease", notice.lease}});
    return {};
  }

  // "2": raise its interrupt 2. One that it has not tells nobody anything.
  Result<> answer(const Mail& mail) {
    const auto wanted =
        numbers({reinterpret_cast<const char*>(mail.bytes.data()), mail.bytes.size()});
    if (!wanted) return tl::unexpected(wanted.error());
    const auto raised = raise(vectors_.at(mail.client) + wanted->front());
    if (!raised) return tl::unexpected(raised.error());
    (void)lease_.send_mail(letter(mail.client, "done"));
    return {};
  }

  Result<> raise(uint32_t vector) {
    PCILEND_TRY(start());
    auto found = pairs_.find(vector);
    if (found == pairs_.end()) {
      auto made = make(vector);
      if (!made) return tl::unexpected(std::move(made).error());
      found = pairs_.emplace(vector, std::move(*made)).first;
    }
    Pair& pair = found->second;
    nvme::Command command = nvme::make_flush(1);
    command.dword[0] |= pair.sent << 16;  // its identifier
    const uint32_t slot = pair.sent % Pair::kEntries;
    std::memcpy(pair.submission->bytes().data() + slot * sizeof command, &command, sizeof command);
    std::atomic_thread_fence(std::memory_order_release);
    const uint32_t round = pair.sent++ / Pair::kEntries;
    drive_.store(pair.grant.submission_doorbell, pair.sent % Pair::kEntries);
    PCILEND_TRY(await_completion(pair, slot, round));
    drive_.store(pair.grant.completion_doorbell, pair.sent % Pair::kEntries);
    return {};
  }

  static Result<> await_completion(Pair& pair, uint32_t slot, uint32_t round) {
    for (int ms = 0; ms < kPatienceMs; ++ms) {
      std::array<uint32_t, 4> dwords{};
      std::memcpy(dwords.data(), pair.completion->bytes().data() + slot * nvme::kCompletionBytes,
                  sizeof dwords);
      const auto completion = nvme::Completion::parse(dwords);
      if (completion.phase == (round % 2 == 0)) return {};
      ::poll(nullptr, 0, 1);
    }
    return fail(ErrorClass::Unreachable, "the drive does not complete a flush");
  }

  Result<Pair> make(uint32_t vector) {
    Pair pair;
    for (auto* memory : {&pair.submission, &pair.completion}) {
      auto made = drive_.allocate(nvme::kPage, {});
      if (!made) return tl::unexpected(std::move(made).error());
      *memory = std::move(*made);
    }
    const auto grant = controller_->create({.entries = Pair::kEntries,
                                            .submission = pair.submission->address(),
                                            .completion = pair.completion->address(),
                                            .vector = static_cast<uint16_t>(vector)});
    if (!grant) return tl::unexpected(grant.error());
    pair.grant = *grant;
    return pair;
  }

  const Lease& lease_;
  Drive& drive_;
  std::unique_ptr<nvme::Controller> controller_;
  std::map<uint32_t, uint32_t> vectors_;  // first of each client, by its lease
  std::map<uint32_t, Pair> pairs_;        // by vector
};

template <class T>
std::string text_of(const Result<T>& result) {
  return result ? "not refused" : result.error().message;
}

class Listener {
 public:
  static Result<Listener> join(Client& client, FunctionId id, uint32_t vectors) {
    auto lease = Lease::join(ThisHost(client), id, "listener", Lease::kSlice, vectors);
    if (!lease) return tl::unexpected(std::move(lease).error());
    say({{"step", "joined"},
         {"lease", lease->client().lease},
         {"vector", lease->client().vector},
         {"vectors", lease->client().vectors}});
    return Listener(client, id, std::move(*lease));
  }

  Result<Json> step(std::string_view name, const std::string& argument) {
    if (name == "wait") return wait(argument);
    if (name == "counts") return counts();
    if (name == "refused") return refused();
    const auto vector = numbers(argument);
    if (!vector) return tl::unexpected(vector.error());
    if (name == "listen") return listen(vector->front());
    if (name == "try") return Json{{"said", text_of(lease_.interrupt(vector->front()))}};
    if (name == "deafen") return deafen(vector->front());
    if (name == "raise") return raise(vector->front());
    if (name == "await") return await(vector->front());
    return fail(ErrorClass::Usage, "no step '{}'", name);
  }

 private:
  Listener(Client& client, FunctionId id, Lease lease)
      : client_(&client), id_(id), lease_(std::move(lease)) {}

  Result<Json> listen(uint32_t vector) {
    auto event = lease_.interrupt(vector);
    if (!event) return tl::unexpected(std::move(event).error());
    events_.insert_or_assign(vector, std::move(*event));
    deaf_.erase(vector);
    return Json{{"vector", vector}};
  }

  // Its eventfd is kept, to see that nothing comes.
  Result<Json> deafen(uint32_t vector) {
    PCILEND_TRY(lease_.end_interrupt(vector));
    deaf_.insert(vector);
    return Json{{"vector", vector}};
  }

  // The interrupt may come a moment after the command's completion.
  Result<Json> raise(uint32_t vector) {
    const std::string text = std::to_string(vector);
    const auto told =
        lease_.ask(std::as_bytes(std::span(text)), std::chrono::milliseconds(kPatienceMs));
    if (!told) return tl::unexpected(told.error());
    const auto event = events_.find(vector);
    if (event == events_.end() || deaf_.contains(vector)) return Json{{"wanted", false}};
    pollfd poll{event->second.get(), POLLIN, 0};
    if (::poll(&poll, 1, kPatienceMs) < 0) return fail_errno("poll");
    if (!(poll.revents & POLLIN))
      return fail(ErrorClass::Unreachable, "interrupt {} does not come", vector);
    count(vector, event->second);
    return Json{{"wanted", true}, {"come", come_[vector]}};
  }

  Result<Json> await(uint64_t wanted) {
    const UniqueFd& event = events_.at(0);
    for (count(0, event); come_[0] < wanted; count(0, event)) {
      pollfd poll{event.get(), POLLIN, 0};
      if (::poll(&poll, 1, kPatienceMs) <= 0)
        return fail(ErrorClass::Unreachable, "{} of {} interrupts have come", come_[0], wanted);
    }
    return Json{{"come", come_[0]}};
  }

  void count(uint32_t vector, const UniqueFd& event) {
    uint64_t more = 0;
    if (::read(event.get(), &more, sizeof more) == sizeof more) come_[vector] += more;
  }

  Result<Json> counts() {
    Json said = Json::object();
    for (const auto& [vector, event] : events_) {
      count(vector, event);
      said[std::to_string(vector)] = come_[vector];
    }
    return said;
  }

  Result<Json> refused() {
    const uint32_t vectors = lease_.client().vectors;
    return Json{{"one more", text_of(lease_.interrupt(vectors))},
                {"more than allowed",
                 text_of(Lease::join(ThisHost(*client_), id_, "x", Lease::kSlice, vectors + 1))},
                {"more than there may be",
                 text_of(Lease::join(ThisHost(*client_), id_, "x", Lease::kSlice, 33))},
                {"registers", text_of(lease_.bar(0, 0, 4096))}};
  }

  static Result<Json> wait(const std::string& file) {
    say({{"step", "waiting"}});
    const auto there = [&] { return ::access(file.c_str(), F_OK) == 0; };
    for (int ms = 0; ms < kPatienceMs && !there(); ms += 10) ::poll(nullptr, 0, 10);
    return Json{{"there", there()}};
  }

  Client* client_;
  FunctionId id_;
  Lease lease_;
  std::map<uint32_t, UniqueFd> events_;
  std::map<uint32_t, uint64_t> come_;  // how many have come
  std::set<uint32_t> deaf_;
};

Result<> listen(Client& client, FunctionId id, uint32_t vectors, std::span<char*> steps) {
  auto listener = Listener::join(client, id, vectors);
  if (!listener) return tl::unexpected(std::move(listener).error());
  for (size_t at = 0; at < steps.size(); ++at) {
    const std::string name = steps[at];
    std::string argument;
    if (name != "counts" && name != "refused") {
      if (++at == steps.size()) return fail(ErrorClass::Usage, "{}: what?", name);
      argument = steps[at];
    }
    auto said = listener->step(name, argument);
    if (!said) return tl::unexpected(std::move(said).error().in(name));
    (*said)["step"] = name;
    say(*said);
  }
  return {};
}

Result<> use(std::string_view role, std::string_view what, std::string_view how,
             std::span<char*> steps) {
  const auto id = parse_function_id(what);
  if (!id) return tl::unexpected(id.error());
  const auto values = numbers(how);
  if (!values) return tl::unexpected(values.error());
  say({{"step", "begun"}, {"pid", ::getpid()}});
  const auto client = open_client();
  if (!client) return tl::unexpected(client.error());
  if (role == "join") return listen(**client, *id, values->front(), steps);
  if (values->size() != 2) return fail(ErrorClass::Usage, "manage ID CLIENTS,VECTORS");
  return Manager::run(**client, *id, *values);
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> arguments(argv, static_cast<size_t>(argc));
  const Result<> done = argc > 3
                            ? use(argv[1], argv[2], argv[3], arguments.subspan(4))
                            : fail(ErrorClass::Usage, "usage: {} manage|join ID NUMBERS [STEP...]",
                                   argc ? argv[0] : "");
  if (done) return 0;
  std::cerr << done.error().message << "\n";
  return static_cast<int>(done.error().kind);
}
