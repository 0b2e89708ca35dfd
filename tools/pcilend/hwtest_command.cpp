// SPDX-License-Identifier: GPL-2.0-or-later
// hwtest: two hosts try what pcilend needs of the adapters between them, by a segment of each. One
// answers (no segment is named), the other measures and reports.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "commands.h"
#include "made_devices.h"
#include "pcilend/segment.h"
#include "target.h"

namespace pcilend {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Level = Finding::Level;

constexpr size_t kPage = 4096;
constexpr size_t kDefaultBytes = size_t{1} << 20;  // behind the page of orders
constexpr uint32_t kDefaultCount = 200;
constexpr uint32_t kDefaultTimeout = 600;  // s
constexpr auto kAnswer = 30s;
constexpr auto kLook = 20ms;
constexpr auto kLate = 2s;  // a notification that has not come by then is lost
constexpr auto kCopyFor = 1s;
constexpr size_t kMaxCopies = 64;
constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kDiskBytes = 1 << 20;
constexpr uint64_t kMagic = 0x7063696c6e647477;  // its layout has another one when it changes

// What the host that measures asks for. It writes the number last.
enum class Order : uint64_t { Meet = 1, Compare, Fill, Echo, End };
struct OrderPage {
  uint64_t magic;
  uint64_t number;
  uint64_t order;
  uint64_t segment;  // of the host that measures
  uint64_t seed;
  uint64_t bytes;
  uint64_t notifies;  // each order is followed by a notification
};
// In that segment: what has been done, and what was wrong with it.
struct AnswerPage {
  uint64_t number;
  uint64_t wrong;
  uint64_t notified;  // by notifications; else it was found by looking
};

// No two words are alike.
uint64_t pattern(uint64_t seed, uint64_t place) {
  uint64_t z = (seed << 40) + place * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Loads and stores of eight bytes, each of which happens.
volatile uint64_t* words(std::span<std::byte> memory) {
  return reinterpret_cast<volatile uint64_t*>(memory.data());
}

void fill(std::span<std::byte> memory, uint64_t seed) {
  volatile uint64_t* const at = words(memory);
  for (size_t i = 0; i < memory.size() / 8; ++i) at[i] = pattern(seed, i);
}

uint64_t count_wrong(std::span<std::byte> memory, uint64_t seed) {
  const volatile uint64_t* const at = words(memory);
  uint64_t wrong = 0;
  for (size_t i = 0; i < memory.size() / 8; ++i) wrong += at[i] != pattern(seed, i);
  return wrong;
}

uint64_t load(const uint64_t& word) {
  return std::atomic_ref(const_cast<uint64_t&>(word)).load(std::memory_order_acquire);
}
void store(uint64_t& word, uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

// Until a notification comes, or that time is over; a look at memory is due then, anyway.
bool await_notification(int event, std::chrono::milliseconds time) {
  pollfd wait{event, POLLIN, 0};
  if (::poll(&wait, 1, static_cast<int>(time.count())) <= 0) return false;
  uint64_t count;
  return ::read(event, &count, sizeof count) == sizeof count;
}

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

Result<uint32_t> node_of(const Options& options) {
  return parse_node_id(options.targets.front());
}

Result<Link> find_link(Session& session, uint32_t node, const std::string& adapter) {
  const auto links = session.client.links();
  if (!links) return tl::unexpected(links.error());
  for (const auto& link : *links)
    if (link.peer == node && link.state == PCILEND_LINK_UP &&
        (adapter.empty() || link.adapter == adapter))
      return link;
  return fail(ErrorClass::NotFound, "no link to node {} is up{}: 'pcilend link' lists them", node,
              adapter.empty() ? "" : " over adapter " + adapter);
}

Result<OwnedSegment> make_segment(Session& session, size_t bytes, uint32_t node,
                                  const std::string& adapter) {
  auto segment = OwnedSegment::create(ThisHost(session.client), kPage + bytes,
                                      {.name = "hwtest", .notify = true});
  if (!segment) return segment;
  PCILEND_TRY(segment->offer(node, false, adapter));
  return segment;
}

// The host that answers.
class Answerer {
 public:
  Answerer(Session& session, const OwnedSegment& segment, std::string adapter)
      : session_(session), segment_(segment), adapter_(std::move(adapter)) {
    store(orders().magic, kMagic);
  }

  // Carries out the next order, if there is one. False: it was the last one, or the link is lost.
  Result<bool> step(bool notified) {
    if (other_ && other_->lost()) return false;
    const uint64_t number = load(orders().number);
    if (number == done_) return true;
    if (!notified && orders().notifies != 0)
      notified = await_notification(segment_.notifications(), kLate);
    const auto order = static_cast<Order>(orders().order);
    uint64_t wrong = 0;
    if (order == Order::Meet) {
      auto other = Connection::open(ThisHost(session_.client),
                                    FunctionId{static_cast<uint32_t>(orders().segment)},
                                    {false, false, adapter_});
      if (!other) return tl::unexpected(std::move(other).error());
      other_.emplace(std::move(*other));
    }
    if (!other_) return fail(ErrorClass::Failure, "the other host has not met this one");
    if (order == Order::Compare)
      wrong = count_wrong(data(segment_.bytes()), orders().seed);
    else if (order == Order::Fill)
      fill(data(other_->bytes()), orders().seed);
    auto& answers = *reinterpret_cast<AnswerPage*>(other_->bytes().data());
    answers.wrong = wrong;
    answers.notified = notified;
    store(answers.number, number);
    done_ = number;
    std::ignore = other_->notify();  // without notifications the other looks by itself
    return order != Order::End;
  }

 private:
  [[nodiscard]] OrderPage& orders() const {
    return *reinterpret_cast<OrderPage*>(segment_.bytes().data());
  }
  [[nodiscard]] std::span<std::byte> data(std::span<std::byte> memory) const {
    const size_t most = memory.size() - kPage;
    return memory.subspan(kPage, std::min<size_t>(most, orders().bytes) / 8 * 8);
  }

  Session& session_;
  const OwnedSegment& segment_;
  std::string adapter_;
  std::optional<Connection> other_;
  uint64_t done_ = 0;
};

Result<Answer> answer(Session& session, const Options& options, uint32_t node, const Link& link) {
  const auto events = session.open_events();
  if (!events) return tl::unexpected(events.error());
  const auto self = session.client.node();
  if (!self) return tl::unexpected(self.error());
  const auto segment = make_segment(session, kDefaultBytes, node, link.adapter);
  if (!segment) return tl::unexpected(segment.error());
  HwtestAnswer waiting;
  waiting.link = link;
  waiting.node = node;
  waiting.command = fmt::format("pcilend hwtest {} {}", self->id, to_string(segment->id()));
  PCILEND_TRY(session.emit(waiting));
  Answerer answerer(session, *segment, link.adapter);
  const auto deadline =
      session.now() + std::chrono::seconds(options.timeout.value_or(kDefaultTimeout));
  for (;;) {
    const bool notified = await_notification(segment->notifications(), kLook);
    const auto more = answerer.step(notified);
    if (!more) return tl::unexpected(more.error());
    if (!*more) return EmittedAnswer{};
    if (session.now() >= deadline)
      return fail(ErrorClass::Unreachable, "node {} has not run '{}' to its end in time", node,
                  waiting.command);
    if (notified) continue;
    const auto event = (*events)->next(0ms);
    if (!event) return tl::unexpected(event.error());
    const auto* const wake = std::get_if<Wake>(&*event);
    if (wake && *wake == Wake::Stopped) return EmittedAnswer{};
  }
}

// The host that measures.
class Measurer {
 public:
  Measurer(Session& session, Connection other, OwnedSegment own, HwtestAnswer report)
      : session_(session),
        other_(std::move(other)),
        own_(std::move(own)),
        report_(std::move(report)) {}

  Result<> meet() {
    if (other_.bytes().size() <= kPage || load(orders().magic) != kMagic)
      return fail(ErrorClass::Usage,
                  "{} is no segment of 'pcilend hwtest': run that on its host, and here what it "
                  "says",
                  to_string(other_.segment().id));
    orders().segment = own_.id().value;
    orders().bytes = data(other_.bytes()).size();
    return order(Order::Meet);
  }

  Result<> windows() {
    session_.progress("memory windows");
    const auto there = data(other_.bytes());
    const Sequence sequence(other_);
    fill(there, 1);
    if (!sequence.complete()) return lost("while its memory was written");
    PCILEND_TRY(order(Order::Compare, 1));
    note("memory window to the other host", answers().wrong, there.size());
    const size_t back = std::min(there.size(), kReadBytes);
    note("reads back from it", count_wrong(there.first(back), 1), back);
    PCILEND_TRY(order(Order::Fill, 2));
    const auto here = data(own_.bytes());
    note("memory window from the other host", count_wrong(here, 2), here.size());
    return {};
  }

  Result<> interrupts(uint32_t count) {
    session_.progress("interrupts");
    std::vector<double> times;
    uint64_t notified = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const auto start = Clock::now();
      PCILEND_TRY(order(Order::Echo));
      times.push_back(microseconds(Clock::now() - start));
      notified += last_was_notified_ && answers().notified != 0;
    }
    if (times.empty()) return {};
    std::sort(times.begin(), times.end());
    measure("round trip of a notification, shortest", times.front(), "us");
    measure("round trip of a notification, median", times[times.size() / 2], "us");
    measure("round trip of a notification, longest", times.back(), "us");
    if (notified == count)
      say(Level::Ok, "interrupts", fmt::format("{} notifications each way have arrived", count));
    else if (notified == 0 && !can_notify_)
      say(Level::Note, "interrupts",
          "no memory window reaches the other host's interrupts: those of functions are relayed");
    else
      say(Level::Wrong, "interrupts",
          fmt::format("{} of {} notifications were lost, or late by 2 s", count - notified, count),
          "see /proc/interrupts and the kernel logs of both hosts");
    return {};
  }

  Result<> throughput() {
    session_.progress("throughput");
    const auto there = data(other_.bytes());
    std::vector<std::byte> from(there.size(), std::byte{0x5a});
    const auto start = Clock::now();
    size_t copies = 0;
    const Sequence sequence(other_);
    while (copies < kMaxCopies && Clock::now() - start < kCopyFor) {
      std::memcpy(there.data(), from.data(), from.size());
      ++copies;
      static_cast<void>(*reinterpret_cast<const volatile uint32_t*>(there.data()));
    }
    const double written = microseconds(Clock::now() - start);
    if (!sequence.complete()) return lost("while it was written to");
    measure("stores of one processor", static_cast<double>(copies * from.size()) / written, "MB/s");
    const size_t back = std::min(there.size(), kReadBytes);
    const auto read_start = Clock::now();
    std::memcpy(from.data(), there.data(), back);
    const double read = microseconds(Clock::now() - read_start);
    measure("loads of one processor", static_cast<double>(back) / read, "MB/s");
    return {};
  }

  // The table, and what only a function can show: that it is let through, both ways.
  Result<> requesters() {
    session_.progress("requesters");
    const Link& link = report_.link;
    say(Level::Ok, "requester IDs of this host",
        link.requesters
            ? fmt::format("{} of {} entries of the adapter's table used, {} of lent functions",
                          link.requesters_used.value_or(0), *link.requesters,
                          link.requesters_lent.value_or(0))
            : "the adapter has no table that pcilend knows: all may send");
    const auto functions = session_.client.functions();
    if (!functions) return tl::unexpected(functions.error());
    size_t tried = 0;
    for (const auto& function : *functions) {
      if (function.lender != report_.node || function.adapter != link.adapter) continue;
      const auto address = parse_pci_address(function.virtual_address);
      if (!address) continue;
      for (const auto& disk : find_made_devices(session_.environment, *address).disks) {
        read_disk(function, disk.name);
        ++tried;
      }
    }
    if (tried == 0)
      say(Level::Note, "DMA",
          fmt::format("no drive of node {} is borrowed here over this adapter: whether it lets "
                      "functions through was not tried",
                      report_.node),
          "pcilend borrow a drive for this host, and run this again");
    return {};
  }

  // Somebody cuts the link, and puts it back.
  Result<> link_loss(std::chrono::seconds within) {
    session_.warn("cut the link now, and put it back when this says so");
    const Sequence sequence(other_);
    const auto start = session_.now();
    while (!other_.lost()) {
      if (session_.now() - start >= within)
        return fail(ErrorClass::State, "the link was not cut in {} s", within.count());
      session_.sleep(20ms);
    }
    const bool noticed = !sequence.complete();
    say(noticed ? Level::Ok : Level::Wrong, "link loss",
        noticed ? "was told to those who had stored something"
                : "stores over a dead link were taken for done",
        noticed ? "" : "send this report, with the kernel logs of both hosts");
    session_.warn("the link is lost: put it back now");
    const auto cut = session_.now();
    while (!find_link(session_, report_.node, report_.link.adapter)) {
      if (session_.now() - cut >= within) {
        say(Level::Wrong, "link loss",
            fmt::format("the link has not come back in {} s", within.count()),
            "see 'pcilend link' and the kernel logs of both hosts");
        return {};
      }
      session_.sleep(100ms);
    }
    measure("until the link was up again",
            std::chrono::duration<double>(session_.now() - cut).count(), "s");
    return {};
  }

  Result<> steadiness() {
    const auto now = find_link(session_, report_.node, report_.link.adapter);
    const bool steady = now && now->downs == report_.link.downs && !other_.lost();
    say(steady ? Level::Ok : Level::Wrong, "link",
        steady ? "was not lost meanwhile" : "was lost meanwhile, for a moment at least",
        steady ? "" : "see the kernel logs of both hosts");
    return {};
  }

  Result<> end() { return order(Order::End); }

  HwtestAnswer take_report() { return std::move(report_); }

 private:
  [[nodiscard]] OrderPage& orders() const {
    return *reinterpret_cast<OrderPage*>(other_.bytes().data());
  }
  [[nodiscard]] AnswerPage& answers() const {
    return *reinterpret_cast<AnswerPage*>(own_.bytes().data());
  }
  [[nodiscard]] std::span<std::byte> data(std::span<std::byte> memory) const {
    const size_t bytes = std::min(own_.bytes().size(), other_.bytes().size()) - kPage;
    return memory.subspan(kPage, bytes);
  }

  Result<> order(Order what, uint64_t seed = 0) {
    orders().order = static_cast<uint64_t>(what);
    orders().seed = seed;
    orders().notifies = can_notify_;
    store(orders().number, ++number_);
    if (can_notify_) can_notify_ = other_.notify().has_value();
    const auto deadline = Clock::now() + kAnswer;
    do {
      last_was_notified_ = await_notification(
          own_.notifications(), can_notify_ && number_ > 1 ? std::chrono::milliseconds(kLate)
                                                           : std::chrono::milliseconds(kLook));
      if (load(answers().number) == number_) return {};
      if (other_.lost()) return lost("while it was asked");
    } while (Clock::now() < deadline);
    return fail(ErrorClass::Unreachable,
                "node {} does not answer: is 'pcilend hwtest' still running there, and do the "
                "windows lead to each other's memory?",
                report_.node);
  }

  static Result<> lost(std::string_view when) {
    return fail(ErrorClass::State, "the link was lost {}: run this again on both hosts", when);
  }

  void say(Level level, std::string subject, std::string text, std::string cure = {}) {
    report_.findings.push_back({level, std::move(subject), std::move(text), std::move(cure)});
  }
  void measure(std::string what, double value, std::string unit) {
    report_.measures.push_back({std::move(what), value, std::move(unit)});
  }
  void note(const char* what, uint64_t wrong, size_t bytes) {
    if (wrong == 0)
      say(Level::Ok, what, fmt::format("{} bytes are as they were stored", bytes));
    else
      say(Level::Wrong, what, fmt::format("{} of {} words are wrong", wrong, bytes / 8),
          "the adapter's translations do not lead where its driver says: send this report");
  }

  void read_disk(const Function& function, const std::string& name) {
    const std::string subject = "DMA of " + to_string(function.id);
    const auto path = session_.environment.path("/dev/" + name);
    const UniqueFd disk(::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
    if (!disk) {
      say(Level::Wrong, subject,
          fmt::format("{} can't be opened: {}", path.native(), std::strerror(errno)),
          "run this as root, and look whether something has it exclusively");
      return;
    }
    void* const memory =
        ::mmap(nullptr, kDiskBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      say(Level::Wrong, subject, fmt::format("no memory to read into: {}", std::strerror(errno)),
          "free some, and run this again");
      return;
    }
    const auto start = Clock::now();
    const ssize_t read = ::pread(disk.get(), memory, kDiskBytes, 0);
    const double time = microseconds(Clock::now() - start);
    ::munmap(memory, kDiskBytes);
    if (read > 0)
      measure(fmt::format("reads from {}, borrowed from the other host", name),
              static_cast<double>(read) / time, "MB/s");
    say(read > 0 ? Level::Ok : Level::Wrong, subject,
        read > 0 ? fmt::format("{} bytes were read from {}: the other host's adapter lets it "
                               "through, both ways",
                               read, name)
                 : fmt::format("{} can't be read", name),
        read > 0 ? "" : "see the kernel logs of both hosts, and 'pcilend check' on the lender");
  }

  Session& session_;
  Connection other_;
  OwnedSegment own_;
  HwtestAnswer report_;
  uint64_t number_ = 0;
  bool can_notify_ = true;
  bool last_was_notified_ = false;
};

Result<Answer> measure(Session& session, const Options& options, uint32_t node, const Link& link) {
  const auto id = parse_function_id(options.words.front());
  if (!id)
    return fail(ErrorClass::Usage,
                "'{}' is no segment: run 'pcilend hwtest' on node {} first, and here what it says",
                options.words.front(), node);
  auto other = Connection::open(ThisHost(session.client), *id, {false, false, link.adapter});
  if (!other) return tl::unexpected(std::move(other).error().in(to_string(*id)));
  auto own = make_segment(session, kDefaultBytes, node, link.adapter);
  if (!own) return tl::unexpected(std::move(own).error());
  HwtestAnswer report;
  report.link = link;
  report.node = node;
  Measurer measurer(session, std::move(*other), std::move(*own), std::move(report));
  PCILEND_TRY(measurer.meet());
  PCILEND_TRY(measurer.windows());
  PCILEND_TRY(measurer.interrupts(options.count.value_or(kDefaultCount)));
  PCILEND_TRY(measurer.throughput());
  PCILEND_TRY(measurer.requesters());
  PCILEND_TRY(measurer.steadiness());
  PCILEND_TRY(options.link_loss ? measurer.link_loss(std::chrono::seconds(
                                      options.timeout.value_or(kDefaultTimeout)))
                                : measurer.end());
  session.progress("");
  return measurer.take_report();
}

}  // namespace

Result<Answer> command_hwtest(Session& session, const Options& options) {
  const auto node = node_of(options);
  if (!node) return tl::unexpected(node.error());
  const auto adapter = adapter_of(options);
  if (!adapter) return tl::unexpected(adapter.error());
  const auto link = find_link(session, *node, *adapter);
  if (!link) return tl::unexpected(link.error());
  return options.words.empty() ? answer(session, options, *node, *link)
                               : measure(session, options, *node, *link);
}

}  // namespace pcilend
