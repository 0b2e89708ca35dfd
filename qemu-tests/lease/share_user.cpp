// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-share-user: manages an edu device that others share, or is one of those, as a scenario
// asks for it, and says on stdout what came of each step, a JSON object.
//
//	manage ID STEP...	leases it alone
//	join ID[,VECTORS] STEP...	becomes a client of it
//	crowd ID COUNT FILE		so many clients of it once the file is there, for ever
//
// Steps of a manager: share CLIENTS[,NODE...]: a policy: page 0 of BAR 0 is common, 4 pages from 16
// on are one each; serve: confirms the end of clients, and answers them, until the lease is over;
// hold FILE: answers no mail before the file is there; late FILE: answers none, and first looks at
// what becomes of each client that ends, until the file is there, or 4 s; probe: serves, and has
// the device write to the second page of each client that ends; mute: is told of them, and confirms
// nothing; refused.
//
// Steps of both: map BYTES: two segments; copy: each page of the first to the second, by the
// device; run FILE: copies until the file is there; wait FILE; over: waits for the end; ones: what
// is left then; unmap: both segments; denied: what a client can't have; fill: maps as many pieces
// as it may; state.
//
// Steps of a client: ask TEXT: its manager, which answers with the same and the client's number;
// misuse: mail that is refused; turns FILE: as run, but side by side with others on any host: who
// may use edu's registers is asked of the manager.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <deque>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
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
    for (const char* one : {"share", "map", "run", "wait", "hold", "late", "ask", "turns"})
      if (step == one) return true;
    return false;
  }

  Result<Json> step(std::string_view name, const std::string& argument) {
    if (name == "share") return share(argument);
    if (name == "serve" || name == "mute") return serve(name == "serve");
    if (name == "hold") return serve(true, argument);
    if (name == "late") {
      late_ = argument;
      return serve(true);
    }
    if (name == "probe") {
      probes_ = true;
      return serve(true);
    }
    if (name == "unmap") return unmap();
    if (name == "ask") return ask(argument);
    if (name == "misuse") return misuse();
    if (name == "turns") return turns(argument);
    if (name == "fill") return fill_slice();
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

  // All that the manager is told; with `confirm` it does its part. Mail waits for `file`.
  Result<Json> serve(bool confirm, const std::string& file = {}) {
    say({{"step", "serving"}});
    for (;;) {
      const bool answers = late_.empty() && (file.empty() || is_there(file));
      if (answers) answer_mail();
      pollfd poll{lease_.fd(), POLLIN, 0};
      if (::poll(&poll, 1, answers ? kPatienceMs : 10) < 0) return fail_errno("poll");
      if (poll.revents & POLLHUP) return Json{{"over", true}};
      if (poll.revents & POLLIN) PCILEND_TRY(hear_of_client(confirm));
      if (confirm && poll.revents & POLLIN) PCILEND_TRY(take_mail());
    }
  }

  Result<> hear_of_client(bool confirm) {
    const auto notice = lease_.next_client();
    if (!notice) return lease_.over() ? Result<>{} : tl::unexpected(notice.error());
    if (!*notice) return {};
    const ClientNotice& client = **notice;
    static constexpr const char* kNews[] = {"joined", "gone", "quarantined"};
    say({{"step", kNews[client.news]},
         {"lease", client.lease},
         {"node", client.node},
         {"slice", client.slice},
         {"piece", client.piece}});
    if (client.news == PCILEND_NEWS_JOINED || !confirm) return {};
    if (probes_) PCILEND_TRY(probe(client));
    PCILEND_TRY(late_.empty() ? confirm_end(client) : confirm_late(client));
    std::erase(waiting_, client.lease);
    if (has_turn_ == client.lease) pass_turn();
    return {};
  }

  Result<> probe(const ClientNotice& client) {
    const Turn turn;
    PCILEND_TRY(move(kOwn, client.slice + kPage, kFromOwn));
    say({{"step", "probed"}, {"address", client.slice + kPage}});
    return {};
  }

  // The second page of its slice is still there to be written to, what it had is given to nobody
  // else, as a client of this process, and its question went with it.
  Result<> confirm_late(const ClientNotice& client) {
    if (own_.erase(client.lease) != 0) return confirm_end(client);
    {
      const Turn turn;
      PCILEND_TRY(move(kOwn, client.slice + kPage, kFromOwn));
    }
    const auto other = Lease::join(ThisHost(*client_), id_, "edu's manager");
    if (!other) return tl::unexpected(other.error());
    own_.insert(other->client().lease);
    say({{"step", "pried"},
         {"slice", other->client().slice},
         {"piece", other->client().piece},
         {"answer", text_of(send(client.lease, "too late"))}});
    for (int ms = 0; ms < 4000 && !is_there(late_); ms += 10) ::poll(nullptr, 0, 10);
    PCILEND_TRY(confirm_end(client));
    say({{"step", "confirmed"}});
    return {};
  }

  Result<> take_mail() {
    const auto mail = lease_.next_mail();
    if (!mail) return lease_.over() ? Result<>{} : tl::unexpected(mail.error());
    if (!*mail) return {};
    const std::string text = content(**mail);
    if (text == "turn") {
      waiting_.push_back((*mail)->client);
      if (has_turn_ == 0) pass_turn();
    } else if (text == "done") {
      (void)send((*mail)->client, "done");
      if (has_turn_ == (*mail)->client) pass_turn();
    } else {
      say({{"step", "asked"}, {"lease", (*mail)->client}, {"text", text}});
      held_[(*mail)->client] = text;
    }
    return {};
  }

  // One after the other; a client that is gone meanwhile is passed over.
  void pass_turn() {
    for (has_turn_ = 0; has_turn_ == 0 && !waiting_.empty(); waiting_.pop_front())
      if (send(waiting_.front(), "yours")) has_turn_ = waiting_.front();
  }

  void answer_mail() {
    for (const auto& [client, text] : held_) {
      const auto sent = send(client, fmt::format("{} to {}", text.substr(0, 100), client));
      say({{"step", "answered"},
           {"lease", client},
           {"answer", text_of(sent)},
           {"twice", text_of(send(client, "once more"))},
           {"a stranger", text_of(send(99999, "hello"))},
           {"nobody", text_of(send(0, "hello"))}});
    }
    held_.clear();
  }

  static Mail mail(uint32_t client, std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {client, {bytes.begin(), bytes.end()}};
  }
  static std::string content(const Mail& mail) {
    return {reinterpret_cast<const char*>(mail.bytes.data()), mail.bytes.size()};
  }
  [[nodiscard]] Result<> send(uint32_t client, std::string_view text) const {
    return lease_.send_mail(mail(client, text));
  }

  [[nodiscard]] Result<std::string> asked(std::string_view text) const {
    const auto answer =
        lease_.ask(std::as_bytes(std::span(text)), std::chrono::milliseconds(kPatienceMs));
    if (!answer) return tl::unexpected(answer.error());
    return content(*answer);
  }

  Result<Json> ask(const std::string& text) {
    say({{"step", "asking"}});
    const auto answer = asked(text);
    return Json{{"answer", answer.value_or("")}, {"refused", text_of(answer)}};
  }

  Result<Json> misuse() {
    const std::string most(kMailMax, 'm');
    Json said = {{"too much", text_of(client_->lease_send_mail(lease_.fd(), mail(0, most + "m")))},
                 {"nothing", text_of(client_->lease_send_mail(lease_.fd(), mail(0, "")))},
                 {"to another client", text_of(send(lease_.client().lease, "x"))}};
    PCILEND_TRY(send(0, most));
    said["a second one"] = text_of(send(0, "y"));
    pollfd poll{lease_.fd(), POLLIN, 0};
    if (::poll(&poll, 1, kPatienceMs) < 0) return fail_errno("poll");
    said["before the answer is taken"] = text_of(send(0, "z"));
    const auto answer = lease_.next_mail();
    if (!answer) return tl::unexpected(answer.error());
    said["polled"] = (poll.revents & POLLIN) != 0;
    said["answer"] = *answer ? content(**answer) : "";
    poll.revents = 0;
    if (::poll(&poll, 1, 0) < 0) return fail_errno("poll");
    said["polled then"] = (poll.revents & POLLIN) != 0;
    return said;
  }

  // With leave of the manager, which takes it back with the link: what was begun then counts for
  // nothing.
  Result<Json> turns(const std::string& file) {
    uint64_t copies = 0;
    uint64_t wrong = 0;
    uint64_t disturbed = 0;
    say({{"step", "running"}});
    while (!is_there(file)) {
      const uint64_t epoch = lease_.epoch();
      const auto turn = asked("turn");
      if (!turn) return tl::unexpected(turn.error());
      turn_ = epoch;
      const auto same = copy_all();
      const bool undisturbed = lease_.epoch() == epoch;
      turn_.reset();
      if (!same && undisturbed) return tl::unexpected(same.error());
      if (!undisturbed) {
        ++disturbed;
      } else {
        ++copies;
        wrong += !*same;
      }
      if (const auto done = asked("done"); !done) return tl::unexpected(done.error());
      say({{"step", "copied"}, {"copies", copies}, {"wrong", wrong}, {"disturbed", disturbed}});
    }
    return Json{{"copies", copies}, {"wrong", wrong}, {"disturbed", disturbed}};
  }

  Result<Json> fill_slice() {
    std::vector<OwnedSegment> segments;
    std::vector<DeviceMemory> pieces;
    for (;;) {
      auto segment = OwnedSegment::create(ThisHost(*client_), kPage, {.name = "piece"});
      if (!segment) return tl::unexpected(std::move(segment).error());
      auto piece = lease_.map(segment->buffer());
      if (!piece) return Json{{"pieces", pieces.size()}, {"refused", piece.error().message}};
      segments.push_back(std::move(*segment));
      pieces.push_back(std::move(*piece));
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

  Result<Json> unmap() {
    source_.reset();
    target_.reset();
    return Json::object();
  }

  // What is under way in it ends by itself, also when its process is gone.
  Result<> await_idle() const {
    for (int ms = 0; ms < kPatienceMs; ++ms) {
      if (lease_.over()) return fail(ErrorClass::State, "the lease is over");
      if (turn_ && lease_.epoch() != *turn_)
        return fail(ErrorClass::State, "the turn went with the link");
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
      std::optional<Turn> turn;
      if (!turn_) turn.emplace();
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
  std::optional<uint64_t> turn_;  // a client's, that the manager gave it: the epoch then
  uint32_t has_turn_ = 0;         // as its manager sees it; 0: nobody
  std::deque<uint32_t> waiting_;
  std::map<uint32_t, std::string> held_;  // what they have asked
  std::string late_;
  bool probes_ = false;
  std::set<uint32_t> own_;  // clients of the manager's own process
};

Result<> crowd(std::string_view what, std::string_view how_many, const std::string& file) {
  const auto id = parse_function_id(what);
  if (!id) return tl::unexpected(id.error());
  const auto count = numbers(how_many);
  if (!count) return tl::unexpected(count.error());
  const auto host = ThisHost::open();
  if (!host) return tl::unexpected(host.error());
  std::vector<Lease> leases;
  leases.reserve(count->front());
  say({{"step", "waiting"}});
  while (!is_there(file)) ::poll(nullptr, 0, 10);
  while (leases.size() < count->front()) {
    auto lease = Lease::join(*host, *id, "one of many");
    if (!lease) return tl::unexpected(std::move(lease).error());
    leases.push_back(std::move(*lease));
  }
  say({{"made", leases.size()}});
  for (;;) ::pause();
}

Result<> use(std::string_view role, std::string_view what, std::span<char*> steps) {
  if (role == "crowd" && steps.size() == 2) return crowd(what, steps[0], steps[1]);
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
  const Result<> done = argc > 3 ? use(argv[1], argv[2], arguments.subspan(3))
                                 : fail(ErrorClass::Usage, "usage: {} manage|join|crowd ID STEP...",
                                        argc ? argv[0] : "");
  if (done) return 0;
  std::cerr << done.error().message << "\n";
  return static_cast<int>(done.error().kind);
}
