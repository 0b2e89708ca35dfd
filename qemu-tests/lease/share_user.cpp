// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-share-user: manages an edu device that others share, or is one of those, as a scenario
// asks for it, and says on stdout what came of each step, a JSON object.
//
//	manage ID STEP...	leases it alone
//	join ID[,VECTORS] STEP...	becomes a client of it
//
// Steps of a manager: share CLIENTS[,NODE...]: a policy: page 0 of BAR 0 is common, 4 pages from 16
// on are one each; serve: confirms the end of clients until the lease is over; mute: is told of
// them, and confirms nothing; refused.
// Steps of both: map BYTES: two segments; copy: each page of the first to the second, by the
// device; run FILE: copies until the file is there; wait FILE; over: waits for the end; ones: what
// is left then; denied: what a client can't have; state.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "pcilend/client.h"
#include "pcilend/lease.h"
#include "pcilend/result.h"
#include "pcilend/segment.h"

namespace {

using namespace pcilend;
using Json = nlohmann::json;

constexpr int kPatienceMs = 120000;
constexpr size_t kPage = 4096;
constexpr uint32_t kPool = 16;  // the first page of it

// edu's registers (docs/specs/edu.rst); its own page is at kOwn.
constexpr size_t kIdentification = 0x00;
constexpr size_t kSource = 0x80;
constexpr size_t kDestination = 0x88;
constexpr size_t kCount = 0x90;
constexpr size_t kCommand = 0x98;
constexpr uint64_t kOwn = 0x40000;
constexpr uint64_t kRun = 0x1;
constexpr uint64_t kFromOwn = 0x2;

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

void fill(const OwnedSegment& segment, uint64_t seed) {
  const auto bytes = segment.bytes();
  for (size_t at = 0; at < bytes.size(); at += sizeof seed) {
    const uint64_t word = (seed << 40 | at) * 0x9e3779b97f4a7c15;
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
}

bool is_there(const std::string& file) {
  return ::access(file.c_str(), F_OK) == 0;
}

template <class T>
std::string text_of(const Result<T>& result) {
  return result ? "not refused" : result.error().message;
}

// One at a time of this host uses the device: it has one set of registers.
class Turn {
 public:
  Turn() : lock_(::open("/run/pcilend-share-user", O_CREAT | O_RDWR | O_CLOEXEC, 0600)) {
    if (lock_) ::flock(lock_.get(), LOCK_EX);
  }

 private:
  UniqueFd lock_;
};

class User {
 public:
  static Result<User> begin(Client& client, bool manager, FunctionId id, uint32_t vectors) {
    auto lease = manager
                     ? Lease::borrow(ThisHost(client), id, "edu's manager")
                     : Lease::join(ThisHost(client), id, "edu's client", Lease::kSlice, vectors);
    if (!lease) return tl::unexpected(std::move(lease).error());
    auto registers = lease->bar(0, 0, kPage);
    if (!registers) return tl::unexpected(std::move(registers).error());
    if (!manager) {
      Json pages = Json::array();
      for (const auto& range : lease->ranges()) pages.push_back({range.page, range.pages});
      say({{"step", "joined"},
           {"lease", lease->client().lease},
           {"slice", lease->client().slice},
           {"piece", lease->client().piece},
           {"pages", pages}});
    }
    return User(client, id, std::move(*lease), std::move(*registers));
  }

  static bool takes_argument(std::string_view step) {
    return step == "share" || step == "map" || step == "run" || step == "wait";
  }

  Result<Json> step(std::string_view name, const std::string& argument) {
    if (name == "share") return share(argument);
    if (name == "serve" || name == "mute") return serve(name == "serve");
    if (name == "refused") return refused();
    if (name == "map") return map(argument);
    if (name == "copy") return copy();
    if (name == "run") return run(argument);
    if (name == "wait") return wait(argument);
    if (name == "over") return over();
    if (name == "ones") return ones();
    if (name == "denied") return denied();
    if (name == "state") return state();
    return fail(ErrorClass::Usage, "no step '{}'", name);
  }

 private:
  User(Client& client, FunctionId id, Lease lease, Registers registers)
      : client_(&client), id_(id), lease_(std::move(lease)), registers_(std::move(registers)) {}

  static SharePolicy policy(uint32_t clients) {
    return {.clients = clients,
            .ranges = {{.bar = 0, .page = 0, .pages = 1},
                       {.bar = 0, .page = kPool, .pages = 4, .pool = true}}};
  }

  Result<Json> share(const std::string& argument) {
    const auto values = numbers(argument);
    if (!values) return tl::unexpected(values.error());
    SharePolicy wanted = policy(values->front());
    if (values->size() > 1) wanted.nodes.emplace(values->begin() + 1, values->end());
    PCILEND_TRY(lease_.share(wanted));
    return Json{{"clients", values->front()}};
  }

  // All that the manager is told; with `confirm` it does its part.
  Result<Json> serve(bool confirm) {
    say({{"step", "serving"}});
    for (;;) {
      pollfd poll{lease_.fd(), POLLIN, 0};
      if (::poll(&poll, 1, kPatienceMs) < 0) return fail_errno("poll");
      if (poll.revents & POLLHUP) return Json{{"over", true}};
      if (!(poll.revents & POLLIN)) continue;
      const auto notice = lease_.next_client();
      if (!notice) return tl::unexpected(notice.error());
      if (!*notice) continue;
      const ClientNotice& client = **notice;
      static constexpr const char* kNews[] = {"joined", "gone", "quarantined"};
      say({{"step", kNews[client.news]},
           {"lease", client.lease},
           {"node", client.node},
           {"slice", client.slice},
           {"piece", client.piece}});
      if (client.news != PCILEND_NEWS_JOINED && confirm) PCILEND_TRY(confirm_end(client));
    }
  }

  // Before there is a client.
  Result<Json> refused() {
    SharePolicy odd = policy(2);
    odd.slice = 12288;
    SharePolicy wide = policy(2);
    wide.ranges[1].pages = 128;
    SharePolicy twice = policy(2);
    twice.ranges[1].page = 0;
    SharePolicy stranger = policy(2);
    stranger.nodes = {70000};
    ClientNotice nobody{.lease = 99, .round = 5};
    const UniqueFd memory(::open("/dev/null", O_RDWR | O_CLOEXEC));
    return Json{
        {"a client without a manager", text_of(Lease::join(ThisHost(*client_), id_, "x"))},
        {"65 clients", text_of(lease_.share(policy(65)))},
        {"an odd slice", text_of(lease_.share(odd))},
        {"pages past the end", text_of(lease_.share(wide))},
        {"pages named twice", text_of(lease_.share(twice))},
        {"no node id", text_of(lease_.share(stranger))},
        {"nobody's end", text_of(lease_.cleared(nobody))},
        {"no lease", text_of(client_->lease_share(memory.get(), policy(2)))},
        {"a second manager", text_of(Lease::borrow(ThisHost(*client_), id_, "x"))},
        {"an unknown function",
         text_of(Lease::join(ThisHost(*client_), FunctionId{id_.value | 0xfff}, "x"))},
    };
  }

  // Of a client.
  Result<Json> denied() {
    const uint32_t own = kPool + 4 * lease_.client().piece;
    const auto bar = [&](uint32_t page, uint32_t pages) {
      return text_of(lease_.bar(0, page * kPage, pages * kPage));
    };
    return Json{
        {"its own pages", bar(own, 4)},
        {"a page of its own", bar(own + 1, 1)},
        {"another's pages", bar(lease_.client().piece ? kPool : kPool + 4, 4)},
        {"a page more", bar(own, 5)},
        {"a page of nobody", bar(1, 1)},
        {"a policy", text_of(lease_.share(policy(2)))},
        {"news", text_of(lease_.next_client())},
        {"an end", text_of(lease_.cleared(lease_.client()))},
        {"interrupt 0", text_of(lease_.interrupt(0))},
        {"one client more", text_of(Lease::join(ThisHost(*client_), id_, "x"))},
        {"too large a slice",
         text_of(Lease::join(ThisHost(*client_), id_, "x", uint64_t{128} << 20))},
        {"interrupts", text_of(Lease::join(ThisHost(*client_), id_, "x", Lease::kSlice, 1))}};
  }

  Result<Json> map(const std::string& argument) {
    const auto bytes = numbers(argument);
    if (!bytes) return tl::unexpected(bytes.error());
    for (auto* segment : {&from_, &to_}) {
      auto made = OwnedSegment::create(ThisHost(*client_), bytes->front(), {.name = "edu"});
      if (!made) return tl::unexpected(std::move(made).error());
      segment->emplace(std::move(*made));
    }
    auto source = lease_.map(from_->buffer(), true);
    if (!source) return tl::unexpected(std::move(source).error());
    auto target = lease_.map(to_->buffer());
    if (!target) return tl::unexpected(std::move(target).error());
    source_.emplace(std::move(*source));
    target_.emplace(std::move(*target));
    return Json{{"addresses", {source_->address(), target_->address()}}};
  }

  // What is under way in it ends by itself, also when its process is gone.
  Result<> await_idle() const {
    for (int ms = 0; ms < kPatienceMs; ++ms) {
      if (lease_.over()) return fail(ErrorClass::State, "the lease is over");
      if (!(registers_.load<uint64_t>(kCommand) & kRun)) return {};
      ::poll(nullptr, 0, 1);
    }
    return fail(ErrorClass::Unreachable, "edu does not end its copy");
  }

  Result<> move(uint64_t source, uint64_t destination, uint64_t direction) {
    PCILEND_TRY(await_idle());
    registers_.store<uint64_t>(kSource, source);
    registers_.store<uint64_t>(kDestination, destination);
    registers_.store<uint64_t>(kCount, kPage);
    registers_.store<uint64_t>(kCommand, kRun | direction);
    return await_idle();
  }

  // Its part when a client has ended: the device does nothing for it any more.
  Result<> confirm_end(const ClientNotice& client) {
    const Turn turn;
    PCILEND_TRY(await_idle());
    return lease_.cleared(client);
  }

  Result<bool> copy_all() {
    fill(*from_, ++seed_);
    fill(*to_, 0);
    for (size_t at = 0; at < from_->bytes().size(); at += kPage) {
      const Turn turn;
      PCILEND_TRY(move(source_->address() + at, kOwn, 0));
      PCILEND_TRY(move(kOwn, target_->address() + at, kFromOwn));
    }
    return std::ranges::equal(from_->bytes(), to_->bytes());
  }

  Result<Json> copy() {
    const auto same = copy_all();
    if (!same) return tl::unexpected(same.error());
    return Json{{"same", *same}};
  }

  // Others come and go meanwhile.
  Result<Json> run(const std::string& file) {
    uint64_t copies = 0;
    uint64_t wrong = 0;
    say({{"step", "running"}});
    while (!is_there(file)) {
      const auto same = copy_all();
      if (!same) return Json{{"copies", copies}, {"wrong", wrong}, {"ended", same.error().message}};
      ++copies;
      wrong += !*same;
    }
    return Json{{"copies", copies}, {"wrong", wrong}};
  }

  static Result<Json> wait(const std::string& file) {
    say({{"step", "waiting"}});
    for (int ms = 0; ms < kPatienceMs && !is_there(file); ms += 10) ::poll(nullptr, 0, 10);
    return Json{{"there", is_there(file)}};
  }

  Result<Json> over() {
    say({{"step", "waiting"}});
    pollfd wait{lease_.fd(), POLLPRI, 0};
    if (::poll(&wait, 1, kPatienceMs) < 0) return fail_errno("poll");
    return state();
  }

  Result<Json> ones() {
    const bool ones = registers_.load<uint32_t>(kIdentification) == ~0U;
    return Json{{"ones", ones},
                {"map", text_of(lease_.map(to_->buffer()))},
                {"bar", text_of(lease_.bar(0, 0, kPage))}};
  }

  Result<Json> state() {
    return Json{
        {"epoch", lease_.epoch()}, {"over", lease_.over()}, {"recalled", lease_.recalled()}};
  }

  Client* client_;
  FunctionId id_;
  Lease lease_;
  Registers registers_;
  std::optional<OwnedSegment> from_;
  std::optional<OwnedSegment> to_;
  std::optional<DeviceMemory> source_;
  std::optional<DeviceMemory> target_;
  uint64_t seed_ = 0;
};

Result<> use(std::string_view role, std::string_view what, std::span<char*> steps) {
  const size_t comma = what.find(',');
  const auto id = parse_function_id(what.substr(0, comma));
  if (!id) return tl::unexpected(id.error());
  uint32_t vectors = 0;
  if (comma != std::string_view::npos) {
    const auto values = numbers(what.substr(comma + 1));
    if (!values) return tl::unexpected(values.error());
    vectors = values->front();
  }
  say({{"step", "begun"}, {"pid", ::getpid()}});
  const auto client = open_client();
  if (!client) return tl::unexpected(client.error());
  auto user = User::begin(**client, role == "manage", *id, vectors);
  if (!user) return tl::unexpected(std::move(user).error());
  for (size_t at = 0; at < steps.size(); ++at) {
    const std::string name = steps[at];
    std::string argument;
    if (User::takes_argument(name)) {
      if (++at == steps.size()) return fail(ErrorClass::Usage, "{}: what?", name);
      argument = steps[at];
    }
    auto said = user->step(name, argument);
    if (!said) return tl::unexpected(std::move(said).error().in(name));
    (*said)["step"] = name;
    say(*said);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> arguments(argv, static_cast<size_t>(argc));
  const Result<> done =
      argc > 3 ? use(argv[1], argv[2], arguments.subspan(3))
               : fail(ErrorClass::Usage, "usage: {} manage|join ID STEP...", argc ? argv[0] : "");
  if (done) return 0;
  std::cerr << done.error().message << "\n";
  return static_cast<int>(done.error().kind);
}
