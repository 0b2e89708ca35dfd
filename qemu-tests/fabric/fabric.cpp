// SPDX-License-Identifier: GPL-2.0-or-later
#include "fabric.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <utility>

#include "memory_access.h"

namespace pcilend::fabric {
namespace {

// Guests' memory is above it on the bus of a host, what processors reach by their driver below.
constexpr uint64_t kGuestMemory = 4ull << 30;

// A driver registers its NTB this long, at most, after it set its ready bit (see
// AdapterModel::driver_settled()).
constexpr auto kDriverProbe = std::chrono::milliseconds(200);
// QEMU's answer to a write that it refuses as the device is at work; one that an IOMMU stops is
// answered otherwise. How often such a write is sent: for two seconds.
constexpr int kBusy = EPERM;
constexpr unsigned kAttempts = 1000;
constexpr auto kAttemptPause = std::chrono::milliseconds(2);
constexpr uint64_t kGranule = 2 << 20;
constexpr size_t kMaxGranules = 1024;

// Of what ends in a peer's memory: functions use that above the area of processors.
void count_down(std::optional<Trip>& trip, std::optional<uint64_t> Trip::*what, uint64_t address) {
  if (!trip || address < kGuestMemory) return;
  std::optional<uint64_t>& left = (*trip).*what;
  if (left && *left != 0) --*left;
}

}  // namespace

Fabric::Fabric(const FabricOptions& options, Clock clock, Log& log)
    : options_(options),
      clock_(std::move(clock)),
      log_(log),
      waits_(options.hosts),
      links_(options.hosts * (options.hosts - 1) / 2 * options.paths),
      traffic_(options.hosts * (options.hosts - 1) * options.paths),
      tampering_(traffic_.size()),
      answered_(traffic_.size()) {
  Bridge& bridge = *this;
  std::vector<std::array<std::unique_ptr<AdapterModel>, 2>> models(links_.size());
  for (size_t host = 0; host < options_.hosts; host++) {
    for (size_t peer = 0; peer < options_.hosts; peer++) {
      for (size_t path = 0; host != peer && path < options_.paths; path++) {
        const Product product = options_.products[std::min(path, options_.products.size() - 1)];
        WindowSizes windows = default_windows(product);
        for (unsigned window = 0; window < kWindowCount; window++)
          if (options_.windows[window] != 0) windows[window] = options_.windows[window];
        // The pair is made when its primary side's turn comes.
        auto& pair = models[link_index(host, peer, path)];
        if (host < peer) pair = make_models(product, windows);
        adapters_.push_back(std::make_unique<Adapter>(
            host, peer, path, std::move(pair[host < peer ? 0 : 1]), windows, bridge));
      }
    }
  }
}

Fabric::~Fabric() {
  for (const auto& adapter : adapters_) {
    if (adapter->session() != nullptr) detach(*adapter, "the fabric ends");
  }
}

size_t Fabric::adapter_index(size_t host, size_t peer, size_t path) const {
  return (host * (options_.hosts - 1) + (peer < host ? peer : peer - 1)) * options_.paths + path;
}

Adapter& Fabric::adapter(size_t host, size_t peer, size_t path) const {
  return *adapters_.at(adapter_index(host, peer, path));
}

Result<size_t> Fabric::host_named(std::string_view name) const {
  size_t number = 0;
  if (name.starts_with("host")) {
    const std::string_view digits = name.substr(4);
    const auto end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, number);
    if (error != std::errc() || stop != end) number = 0;
  }
  if (number == 0 || number > options_.hosts)
    return fail(ErrorClass::NotFound, "no host '{}': this fabric has host1 to host{}", name,
                options_.hosts);
  return number - 1;
}

size_t Fabric::link_index(size_t a, size_t b, size_t path) const {
  const size_t low = std::min(a, b);
  const size_t high = std::max(a, b);
  // Pairs in order: (0,1) (0,2) … (1,2) …
  const size_t pair = low * options_.hosts - low * (low + 1) / 2 + (high - low - 1);
  return pair * options_.paths + path;
}

const Link& Fabric::link(size_t a, size_t b, size_t path) const {
  return links_.at(link_index(a, b, path));
}

Link& Fabric::link_of(const Adapter& adapter) {
  return links_[link_index(adapter.host(), adapter.peer(), adapter.path())];
}

Channel& Fabric::channel_from(const Adapter& adapter) {
  return link_of(adapter).channels[adapter.host() < adapter.peer() ? 0 : 1];
}

const PathCounters& Fabric::traffic(const Adapter& from) const {
  return traffic_[adapter_index(from)];
}

const std::vector<uint64_t>& Fabric::answered_granules(const Adapter& adapter) const {
  return answered_[adapter_index(adapter)];
}

void Fabric::reset_counters() {
  std::fill(traffic_.begin(), traffic_.end(), PathCounters{});
  for (const auto& adapter : adapters_) adapter->reset_counters();
}

void Fabric::attach(Adapter& adapter, UniqueFd socket) {
  log_.info("{}: connected", adapter.name());
  adapter.attach(std::move(socket));
}

void Fabric::detach(Adapter& adapter, std::string_view why) {
  log_.info("{}: {}", adapter.name(), why);
  // Readers that wait for this host are answered before its session cancels their messages.
  const std::unique_ptr<Session> session = adapter.detach();
  for (const Adapter* end : {&adapter, &peer_of(adapter)}) tampering_of(*end).forget();
  update_link(adapter);
  answered_[adapter_index(peer_of(adapter))].clear();
}

void Fabric::connected(Adapter& adapter) {
  update_link(adapter);
}

void Fabric::was_reset(Adapter& adapter, bool was_touched) {
  if (!was_touched) return;
  log_.info("{}: reset", adapter.name());
  for (const Adapter* end : {&adapter, &peer_of(adapter)}) tampering_of(*end).forget();
  take_down(adapter);
  update_link(adapter);
}

void Fabric::ready_changed(Adapter& adapter) {
  const bool ready = adapter.model().ready();
  log_.info("{}: driver {}", adapter.name(), ready ? "ready" : "gone");
  auto& release = releases_[&adapter];
  if (release) timers_.cancel(*std::exchange(release, std::nullopt));
  if (!ready) return;
  release = timers_.arm(now() + kDriverProbe, [&adapter] { adapter.model().driver_settled(); });
  if (link_of(adapter).up) peer_of(adapter).link_event(true);
}

void Fabric::loss_acknowledged(Adapter& adapter) {
  update_link(adapter);
}

void Fabric::set_link(size_t a, size_t b, bool enabled, size_t path) {
  links_.at(link_index(a, b, path)).enabled = enabled;
  Adapter& one = adapter(std::min(a, b), std::max(a, b), path);
  log_.info("link {}: {}", one.name(), enabled ? "enabled" : "disabled");
  update_link(one);
}

void Fabric::flap(size_t a, size_t b, std::chrono::milliseconds time, size_t path) {
  set_link(a, b, false, path);
  timers_.arm(now() + time, [this, a, b, path] { set_link(a, b, true, path); });
}

size_t Fabric::hold(Adapter& from, bool holds) {
  Tampering& what = tampering_of(from);
  const std::vector<HeldWrite> held = std::move(what.held);
  what.holds = holds;
  what.held.clear();
  what.held_bytes = 0;
  log_.info("{}: posted writes are {}; {} that were held arrive", from.name(),
            holds ? "held" : "let go", held.size());
  for (const HeldWrite& write : held) arrive_write(from, write.window, write.offset, write.data);
  return held.size();
}

void Fabric::set_trip(const Adapter& from, const Trip& trip) {
  tampering_of(from).trip = trip;
  log_.info("{}: its link goes down after {} reads, or {} writes, of functions", from.name(),
            trip.reads ? std::to_string(*trip.reads) : "any number of",
            trip.writes ? std::to_string(*trip.writes) : "any number of");
}

// Between two transactions, never inside of one.
void Fabric::spring(Adapter& from) {
  auto& trip = tampering_of(from).trip;
  if (!trip || !trip->is_due()) return;
  const Trip due = *std::exchange(trip, std::nullopt);
  if (due.flap.count() != 0)
    flap(from.host(), from.peer(), due.flap, from.path());
  else
    set_link(from.host(), from.peer(), false, from.path());
}

bool Fabric::keep_back(Adapter& from, unsigned window, uint64_t offset,
                       std::span<const std::byte> data) {
  Tampering& what = tampering_of(from);
  if (!what.holds || !link_of(from).up) return false;
  if (what.held_bytes + data.size() > options_.posted_limit) {
    traffic_of(from).count_lost_write(Loss::Overflow);
    log_.artefact("overflow", "{}: {} writes are held; another one is dropped", from.name(),
                  what.held.size());
    return true;
  }
  what.held.push_back({window, offset, {data.begin(), data.end()}});
  what.held_bytes += data.size();
  return true;
}

void Fabric::set_delay(size_t a, size_t b, std::chrono::milliseconds delay, size_t path) {
  links_.at(link_index(a, b, path)).delay = delay;
  log_.info("link {}: delay {} ms", adapter(std::min(a, b), std::max(a, b), path).name(),
            delay.count());
}

void Fabric::update_link(Adapter& one) {
  Link& link = link_of(one);
  Adapter& other = peer_of(one);
  // It trains again only when both drivers have taken note of its loss: a host that is slow here
  // could otherwise never stop in time what it does over the link.
  const bool up = link.enabled && one.present() && other.present() && !one.model().loss_pending() &&
                  !other.model().loss_pending();
  if (up == link.up) return;
  if (!up) {
    take_down(one);
    return;
  }
  link.up = true;
  log_.info("link {}: up", (one.host() < other.host() ? one : other).name());
  one.model().set_link(true);
  other.model().set_link(true);
  one.link_event(true);
  other.link_event(true);
}

void Fabric::take_down(Adapter& one) {
  Link& link = link_of(one);
  Adapter& other = peer_of(one);
  if (!link.up) return;
  link.up = false;
  log_.info("link {}: down", (one.host() < other.host() ? one : other).name());
  for (Channel& channel : link.channels) {
    channel.lose_all();
    if (channel.timer) timers_.cancel(*std::exchange(channel.timer, std::nullopt));
  }
  std::vector<uint64_t> lost;
  for (const auto& [sequence, read] : reads_) {
    if (&link_of(*read.from) == &link) lost.push_back(sequence);
  }
  for (const uint64_t sequence : lost) finish_read(sequence, Loss::LinkDown);
  one.model().set_link(false);
  other.model().set_link(false);
  one.link_event(false);
  other.link_event(false);
}

template <class Deliver, class Lose>
void Fabric::carry(Adapter& from, Deliver deliver, Lose lose) {
  Link& link = link_of(from);
  if (!link.up) {
    lose();
    return;
  }
  Channel& channel = channel_from(from);
  if (link.delay == Duration::zero() && channel.empty()) {
    deliver();
    return;
  }
  channel.push(now(), link.delay, {std::move(deliver), std::move(lose)});
  arm_channel(from);
}

void Fabric::arm_channel(Adapter& from) {
  Channel& channel = channel_from(from);
  const auto due = channel.due();
  if (!due || channel.timer) return;
  channel.timer = timers_.arm(*due, [this, &from, &channel] {
    channel.timer.reset();
    channel.run(now());
    arm_channel(from);
  });
}

void Fabric::signal_peer(Adapter& adapter, const Signal& signal) {
  if (signal.kind == Signal::Kind::Doorbells)
    adapter.counters().doorbells += static_cast<uint64_t>(std::popcount(signal.value));
  carry(
      adapter, [this, &adapter, signal] { peer_of(adapter).model().arrive(signal); }, [] {});
}

void Fabric::window_write(Adapter& from, unsigned window, uint64_t offset,
                          std::span<const std::byte> data) {
  spring(from);
  if (keep_back(from, window, offset, data)) return;
  const Link& link = link_of(from);
  if (link.up && link.delay == Duration::zero() && channel_from(from).empty()) {
    arrive_write(from, window, offset, data);
    return;
  }
  carry(
      from,
      [this, &from, window, offset, copy = std::vector(data.begin(), data.end())] {
        arrive_write(from, window, offset, copy);
      },
      [this, &from] { traffic_of(from).count_lost_write(Loss::LinkDown); });
}

void Fabric::arrive_write(Adapter& from, unsigned window, uint64_t offset,
                          std::span<const std::byte> data) {
  Adapter& to = peer_of(from);
  PathCounters& path = traffic_of(from);
  while (!data.empty()) {
    const Adapter::Landing landing = to.land(window, offset, data.size(), true);
    const auto part = data.first(landing.size);
    switch (landing.where) {
      case Adapter::Where::Memory:
        store(landing.bytes, part);
        path.count_write(landing.target, part.size());
        count_down(tampering_of(from).trip, &Trip::writes, landing.address);
        break;
      case Adapter::Where::Nowhere:
        path.count_lost_write(Loss::Unmapped);
        log_.fault("unmapped write", "{}: {} bytes at window {} + {:#x} (bus {:#x})", from.name(),
                   part.size(), window, offset, landing.address);
        break;
      case Adapter::Where::Interrupt:
      case Adapter::Where::Message:
        send_write(from, landing, part);
        break;
    }
    offset += part.size();
    data = data.subspan(part.size());
  }
}

void Fabric::send_write(Adapter& from, const Adapter::Landing& landing,
                        std::span<const std::byte> data) {
  Session& session = *peer_of(from).session();
  PathCounters& path = traffic_of(from);
  if (session.connection().queued_bytes() + data.size() > options_.posted_limit) {
    path.count_lost_write(Loss::Overflow);
    log_.artefact("overflow",
                  "{}: {} messages wait for the peer's QEMU; a write to {:#x} is dropped",
                  from.name(), session.connection().queued_messages(), landing.address);
    return;
  }
  session.dma_write(landing.address, data);
  path.count_write(landing.target, data.size());
  size_t& peak = peer_of(from).counters().posted_peak;
  peak = std::max(peak, session.connection().queued_messages());
}

void Fabric::window_read(Adapter& from, unsigned window, const ReadTicket& ticket) {
  spring(from);
  carry(
      from, [this, &from, window, ticket] { arrive_read(from, window, ticket); },
      [this, &from, ticket] { answer_ones(from, ticket, Loss::LinkDown); });
}

void Fabric::arrive_read(Adapter& from, unsigned window, const ReadTicket& ticket) {
  Adapter& to = peer_of(from);
  PathCounters& path = traffic_of(from);
  const uint64_t count = ticket.access.count;
  scratch_.assign(count, std::byte{0xff});
  std::vector<Adapter::Landing> messages;
  std::vector<size_t> positions;

  for (uint64_t done = 0; done < count;) {
    const uint64_t offset = ticket.access.offset + done;
    Adapter::Landing landing = to.land(window, offset, count - done, false);
    switch (landing.where) {
      case Adapter::Where::Memory:
        // QEMU does not say who reads. No processor of the lab reads guests' memory.
        if (landing.address >= kGuestMemory && from.refuses_functions()) {
          path.count_lost_read(Loss::Requester);
          log_.fault("requester",
                     "{}: {} bytes at bus {:#x} by a function that is not in its table",
                     from.name(), landing.size, landing.address);
          break;
        }
        load(std::span(scratch_).subspan(done, landing.size), landing.bytes);
        path.count_read(landing.target, landing.size);
        count_down(tampering_of(from).trip, &Trip::reads, landing.address);
        break;
      case Adapter::Where::Message:
        landing.size = std::min<uint64_t>(landing.size, kMaxDmaRead);
        messages.push_back(landing);
        positions.push_back(done);
        break;
      case Adapter::Where::Interrupt:  // nothing answers reads there
      case Adapter::Where::Nowhere:
        path.count_lost_read(Loss::Unmapped);
        log_.fault("unmapped read", "{}: {} bytes at window {} + {:#x} (bus {:#x})", from.name(),
                   landing.size, window, offset, landing.address);
        break;
    }
    done += landing.size;
  }
  if (messages.empty())
    complete(from, ticket, scratch_);
  else
    begin_wait(from, ticket, messages, positions);
}

void Fabric::begin_wait(Adapter& from, const ReadTicket& ticket,
                        const std::vector<Adapter::Landing>& landings,
                        const std::vector<size_t>& positions) {
  const uint64_t sequence = next_read_++;
  PendingRead& read = reads_[sequence];
  read.from = &from;
  read.ticket = ticket;
  read.data = scratch_;
  read.unanswered = landings.size();
  read.deadline = timers_.arm(now() + options_.read_timeout,
                              [this, sequence] { finish_read(sequence, Loss::Timeout); });
  if (waits_.reaches(from.peer(), from.host())) {
    read.cycle_check = timers_.arm(now() + options_.cycle_patience,
                                   [this, sequence] { on_cycle_check(sequence); });
  }
  waits_.add(from.host(), from.peer());

  Session& session = *peer_of(from).session();
  for (size_t i = 0; i < landings.size(); i++) {
    const auto& landing = landings[i];
    const bool sent =
        session.dma_read(landing.address, landing.size,
                         [this, sequence, position = positions[i], address = landing.address,
                          target = landing.target](auto answer) {
                           on_read_answer(sequence, position, address, target, answer);
                         });
    if (!sent) {
      finish_read(sequence, Loss::Timeout);
      return;
    }
  }
}

void Fabric::on_read_answer(uint64_t sequence, size_t position, uint64_t address, Target target,
                            Parsed<std::span<const std::byte>> answer) {
  const auto found = reads_.find(sequence);
  if (found == reads_.end()) return;  // late: answered with all-ones already
  PendingRead& read = found->second;
  if (answer) {
    std::copy(answer->begin(), answer->end(),
              read.data.begin() + static_cast<std::ptrdiff_t>(position));
    traffic_of(*read.from).count_read(target, answer->size());
    if (target == Target::Bar) note_answer(*read.from, address);
  } else {
    traffic_of(*read.from).count_lost_read(Loss::Unmapped);
    log_.fault("unmapped read", "{}: bus {:#x}: {}", read.from->name(), address,
               std::strerror(answer.error()));
  }
  if (--read.unanswered == 0) finish_read(sequence, std::nullopt);
}

void Fabric::note_answer(Adapter& from, uint64_t address) {
  auto& granules = answered_[adapter_index(from)];
  const uint64_t granule = address / kGranule * kGranule;
  const auto at = std::lower_bound(granules.begin(), granules.end(), granule);
  if ((at == granules.end() || *at != granule) && granules.size() < kMaxGranules)
    granules.insert(at, granule);
}

void Fabric::on_cycle_check(uint64_t sequence) {
  const auto found = reads_.find(sequence);
  if (found == reads_.end()) return;
  const Adapter& from = *found->second.from;
  if (waits_.reaches(from.peer(), from.host())) finish_read(sequence, Loss::Cycle);
}

void Fabric::finish_read(uint64_t sequence, std::optional<Loss> loss) {
  const auto found = reads_.find(sequence);
  if (found == reads_.end()) return;
  const PendingRead read = std::move(found->second);
  reads_.erase(found);
  waits_.remove(read.from->host(), read.from->peer());
  timers_.cancel(read.deadline);
  if (read.cycle_check) timers_.cancel(*read.cycle_check);

  if (!loss)
    complete(*read.from, read.ticket, read.data);
  else
    answer_ones(*read.from, read.ticket, *loss);
}

void Fabric::complete(Adapter& from, const ReadTicket& ticket, std::span<const std::byte> data) {
  Adapter& to = peer_of(from);
  const Link& link = link_of(from);
  if (link.up && link.delay == Duration::zero() && channel_from(to).empty()) {
    from.session()->complete_read(ticket, data);
    return;
  }
  carry(
      to,
      [&from, ticket, copy = std::vector(data.begin(), data.end())] {
        from.session()->complete_read(ticket, copy);
      },
      [this, &from, ticket] { answer_ones(from, ticket, Loss::LinkDown); });
}

void Fabric::answer_ones(Adapter& from, const ReadTicket& ticket, Loss loss) {
  if (from.session() == nullptr) return;
  traffic_of(from).count_lost_read(loss);
  const auto name = kLossNames[static_cast<size_t>(loss)];
  if (loss != Loss::LinkDown)
    log_.artefact(name, "{}: read of {} bytes at BAR{} + {:#x} gets all-ones", from.name(),
                  ticket.access.count, ticket.access.region, ticket.access.offset);
  const std::vector<std::byte> ones(ticket.access.count, std::byte{0xff});
  from.session()->complete_read(ticket, ones);
}

// QEMU refuses an access to a device that is at work for another one ("Blocked re-entrant IO"): a
// doorbell of an NVMe drive that waits until commands of a deleted queue have ended. Hardware
// loses none.
bool Fabric::write_again(Adapter& adapter, uint16_t id) {
  const auto write = adapter.session()->recent_writes().find_last(id);
  if (!write || write->attempts == kAttempts) return false;
  timers_.arm(now() + kAttemptPause, [this, &adapter, id] {
    Session* const session = adapter.session();
    const auto last = session ? session->recent_writes().find_last(id) : std::nullopt;
    if (last && link_of(adapter).up)
      session->dma_write(last->address, last->data(), last->attempts + 1);
  });
  return true;
}

void Fabric::dma_write_failed(Adapter& adapter, int error, uint16_t id) {
  if (error == kBusy && write_again(adapter, id)) return;
  traffic_of(peer_of(adapter)).count_lost_write(Loss::Unmapped);
  log_.fault("refused write", "{}: the host's bus refused a posted write: {}", adapter.name(),
             std::strerror(error));
}

void Fabric::bad_map(Adapter& adapter, const DmaMap& map, int error) {
  log_.artefact("bad map", "{}: DMA_MAP of {:#x} + {:#x} refused: {}{}", adapter.name(),
                map.address, map.size, std::strerror(error),
                error == EINVAL ? " (memory must be a memfd that can't shrink: "
                                  "memory-backend-memfd,share=on)"
                                : "");
}

void Fabric::probe(const Adapter& to, unsigned window, uint64_t offset,
                   const std::function<void(Probe)>& done) {
  if (!link(to.host(), to.peer(), to.path()).up) return done(Probe::NoAnswer);
  constexpr uint64_t kProbeSize = 4;
  const Adapter::Landing landing = to.land(window, offset, kProbeSize, false);
  switch (landing.where) {
    case Adapter::Where::Nowhere:
      return done(Probe::NoAnswer);
    case Adapter::Where::Memory:
      return done(Probe::Memory);
    case Adapter::Where::Interrupt:
      return done(Probe::Interrupt);
    case Adapter::Where::Message:
      break;
  }
  const Probe hit = landing.target == Target::Memory ? Probe::Memory : Probe::Bar;
  const bool sent = to.session()->dma_read(landing.address, landing.size, [done, hit](auto answer) {
    done(answer ? hit : Probe::NoAnswer);
  });
  if (!sent) done(Probe::NoAnswer);
}

}  // namespace pcilend::fabric
