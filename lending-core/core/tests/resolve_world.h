// SPDX-License-Identifier: GPL-2.0-or-later
// Hosts joined by NTBs, with IOMMU page tables, to ask the resolver about; and transactions that
// cross them hop by hop, for comparison with what it says. Nothing of resolve.c is used in here.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ntb_rules.h"
#include "pcilend/resolve.h"

namespace resolve_world {

constexpr u64 kPage = PCILEND_PAGE;
constexpr u64 kGiB = 1ULL << 30;

// Where a world's details come from: a seed, or a fuzzer's bytes.
class Source {
 public:
  virtual ~Source() = default;
  virtual u64 Below(u64 end) = 0;
  bool OneIn(u64 n) { return Below(n) == 0; }
};

class Random : public Source {
 public:
  explicit Random(u64 seed) : state_(seed) {}
  u64 Below(u64 end) override { return Next() % end; }

 private:
  u64 Next() {  // SplitMix64 (Steele, Lea, Flood 2014)
    u64 z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  u64 state_;
};

class Bytes : public Source {
 public:
  Bytes(const u8* data, size_t size) : data_(data), left_(size) {}
  u64 Below(u64 end) override {
    u64 value = 0;
    for (u64 span = end - 1; span != 0 && left_ != 0; span >>= 8, --left_) {
      value = value << 8 | *data_++;
    }
    return value % end;
  }
  bool Empty() const { return left_ == 0; }

 private:
  const u8* data_;
  size_t left_;
};

// Page tables.
class Domain {
 public:
  bool Map(u64 iova, u64 phys, u64 size) {
    if (size == 0 || (iova | phys | size) % kPage != 0 || iova + size - 1 < iova) return false;
    for (const Piece& p : pieces_) {
      if (iova < p.iova + p.size && p.iova < iova + size) return false;
    }
    pieces_.push_back({iova, phys, size});
    return true;
  }
  void Unmap(u64 iova) {
    std::erase_if(pieces_, [iova](const Piece& p) { return p.iova == iova; });
  }
  std::optional<u64> Find(u64 iova) const {
    for (const Piece& p : pieces_) {
      if (iova >= p.iova && iova - p.iova < p.size) return p.phys + (iova - p.iova);
    }
    return std::nullopt;
  }

 private:
  struct Piece {
    u64 iova, phys, size;
  };
  std::vector<Piece> pieces_;
};

// Address space in use, as lending-core/core/range.h keeps it.
struct Space {
  Space() = default;
  Space(u64 start, u64 size, u32 capacity) : entries(capacity) {
    pcilend_range_init(&range, start, size, entries.data(), capacity);
  }
  std::vector<pcilend_range_entry> entries;
  pcilend_range range = {};
};

struct Adapter {
  pcilend_layout layout = {};
  std::vector<pcilend_topo_window> windows;
  std::array<Space, PCILEND_SPACES> space;
  Domain domain;
  int link = -1;
};

struct Target {
  pcilend_target target = {};
  std::vector<pcilend_placed> placed;
};

// Where a transaction ends.
struct Place {
  u32 host;
  u64 phys;
  bool operator==(const Place&) const = default;
};

// Layouts of real adapters, and how far the peer sees through each window.
struct Planned {
  pcilend_layout layout;
  std::vector<u64> seen;
};

inline const std::vector<Planned>& Layouts() {
  static const std::vector<Planned> layouts = [] {
    constexpr u64 M = 1ULL << 20;
    std::vector<Planned> all;
    for (const ntb_rules::Link& link :
         {ntb_rules::Amd({64 * kGiB, 16 * kGiB}), ntb_rules::Amd({4 * M, 4 * M}),
          ntb_rules::Amd({kGiB, 256 * M, 16 * M}), ntb_rules::Intel("intel", {512 * kGiB}),
          ntb_rules::IntelGen4({8 * kGiB, 4 * kGiB}),
          ntb_rules::Switchtec({64 * M, 64 * M}, 64, ~0ULL, true),
          ntb_rules::Idt({64 * M}, 64 * M, 12), ntb_rules::Epf({M, M, 2 * M, 512 * M}, 0x1000)}) {
      Planned planned = {};
      char why[PCILEND_LAYOUT_TEXT_BYTES];
      if (pcilend_layout_plan(&link.self, &link.peer, &planned.layout, why, sizeof(why)) != 0) {
        continue;
      }
      for (u32 i = 0; i < link.peer.windows; ++i) planned.seen.push_back(link.peer.window[i].size);
      all.push_back(planned);
    }
    return all;
  }();
  return layouts;
}

class World {
 public:
  explicit World(Source& source) : source_(source) {
    MakeHosts();
    MakeLinks();
    topology = {hosts.data(),
                adapters.data(),
                links.data(),
                static_cast<u32>(hosts.size()),
                static_cast<u32>(adapters.size()),
                static_cast<u32>(links.size())};
    for (u64 n = 1 + source_.Below(4); n > 0; --n) MakeTarget();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // A request that makes sense; `function` is the private domain it is about.
  pcilend_resolve_request Request(const Space& function_space) {
    pcilend_resolve_request request = {};
    request.target = targets[source_.Below(targets.size())]->target;
    request.from.host = static_cast<u32>(source_.Below(hosts.size()));
    request.from.device = source_.OneIn(2);
    request.offset = source_.Below(request.target.size);
    request.size = 1 + source_.Below(request.target.size - request.offset);
    if (source_.OneIn(2)) {  // whole pages
      request.offset &= ~(kPage - 1);
      request.size =
          std::min((request.size + kPage - 1) & ~(kPage - 1), request.target.size - request.offset);
    }
    if (source_.OneIn(3)) request.offset = 0, request.size = request.target.size;
    request.from.at = PCILEND_ANYWHERE;
    request.from.space = &function_space.range;
    if (source_.OneIn(2)) {
      request.from.at = (source_.Below(1 << 20) << 24) + (request.offset & (kPage - 1));
    }
    return request;
  }

  // The transaction of a CPU, or of a function in a private domain, to one byte.
  std::optional<Place> Walk(u32 host, u64 address, const Domain* function) const {
    bool by_device = function != nullptr;
    u64 phys = address;
    if (by_device) {
      if (!hosts[host].translated) return std::nullopt;
      const std::optional<u64> mapped = function->Find(address);
      if (!mapped) return std::nullopt;
      phys = *mapped;
    }
    for (int crossed = 0; crossed <= 16; ++crossed) {
      const auto [adapter, window] = WindowAt(host, phys);
      const bool mmio = adapter >= 0 || IsBar(host, phys);
      if (by_device && mmio && !hosts[host].p2p) return std::nullopt;
      if (adapter < 0) return Place{host, phys};
      const Adapter& out = *states[adapter];
      if (out.link < 0 || !links[out.link].up) return std::nullopt;
      const auto& ends = links[out.link].adapter;
      const u32 peer = ends[0] == static_cast<u32>(adapter) ? ends[1] : ends[0];
      const Adapter& in = *states[peer];
      const u64 offset = phys - out.windows[window].phys;
      if (window >= static_cast<int>(in.layout.windows) ||
          offset >= in.layout.window[window].size) {
        return std::nullopt;
      }
      host = adapters[peer].host;
      if (!hosts[host].translated) return std::nullopt;
      const std::optional<u64> mapped =
          in.domain.Find(in.layout.window[window].translation + offset);
      if (!mapped) return std::nullopt;
      phys = *mapped;
      by_device = true;
    }
    return std::nullopt;
  }

  std::vector<pcilend_topo_host> hosts;
  std::vector<pcilend_topo_adapter> adapters;
  std::vector<pcilend_topo_link> links;
  std::vector<std::unique_ptr<Adapter>> states;  // of adapters, by index
  std::vector<std::unique_ptr<Target>> targets;
  pcilend_topology topology = {};

 private:
  static constexpr u64 kForeign = 0x700000000000;  // what is mapped in an aperture from before

  void MakeHosts() {
    const u64 count = 1 + source_.Below(8);
    const bool odd = source_.OneIn(2);  // some hosts lack something
    for (u64 i = 0; i < count; ++i) {
      hosts.push_back(
          {static_cast<u32>(i + 4), !odd || !source_.OneIn(6), !odd || !source_.OneIn(6)});
    }
  }

  void MakeLinks() {
    const bool dense = source_.OneIn(16);
    const bool odd = source_.OneIn(2);
    const u64 sparseness = dense ? 1 : 1 + hosts.size() / 2;
    for (u32 a = 0; a < hosts.size(); ++a) {
      for (u32 b = a + 1; b < hosts.size(); ++b) {
        if (!source_.OneIn(sparseness)) continue;
        for (u64 n = 1 + source_.Below(3); n > 0; --n) AddLink(a, b, !odd || !source_.OneIn(5));
      }
    }
    for (u32 i = 0; i < adapters.size(); ++i) {
      adapters[i].window = states[i]->windows.data();
      adapters[i].windows = static_cast<u32>(states[i]->windows.size());
      adapters[i].layout = &states[i]->layout;
      for (int s = 0; s < PCILEND_SPACES; ++s) {
        const Space& space = states[i]->space[s];
        adapters[i].space[s] = space.entries.empty() ? nullptr : &space.range;
      }
    }
  }

  void AddLink(u32 a, u32 b, bool up) {
    const u32 first = static_cast<u32>(adapters.size());
    const Planned& to_a = Layouts()[source_.Below(Layouts().size())];
    const Planned& to_b = Layouts()[source_.Below(Layouts().size())];
    AddAdapter(a, to_a, to_b.seen);
    AddAdapter(b, to_b, to_a.seen);
    states[first]->link = states[first + 1]->link = static_cast<int>(links.size());
    pcilend_topo_link link = {{first, first + 1}, up};
    if (source_.OneIn(2)) std::swap(link.adapter[0], link.adapter[1]);
    links.push_back(link);
  }

  void AddAdapter(u32 host, const Planned& own, const std::vector<u64>& seen) {
    auto state = std::make_unique<Adapter>();
    const u64 index = adapters.size();
    state->layout = own.layout;
    for (size_t i = 0; i < seen.size(); ++i) {
      // The peer may have told less than it has, or this host see less.
      const u64 size = source_.OneIn(32) ? seen[i] / 2 & ~(kPage - 1) : seen[i];
      state->windows.push_back({(1ULL << 52) + (index << 46) + (i << 41), size});
    }
    const auto& layout = state->layout;
    const struct {
      u64 start, size;
    } regions[PCILEND_SPACES] = {{0, layout.dma_limit},
                                 {layout.exports.iova, layout.exports.size},
                                 {layout.slots.iova, layout.slots.size}};
    for (int s = 0; s < PCILEND_SPACES; ++s) {
      if (regions[s].size == 0 || source_.OneIn(8)) continue;
      state->space[s] =
          Space(regions[s].start, regions[s].size, static_cast<u32>(2 + source_.Below(6)));
      for (u64 n = source_.Below(4); n > 0; --n) Take(*state, s);
    }
    adapters.push_back({host, "0000:00:04.0"});
    states.push_back(std::move(state));
  }

  // Something else that the peer reaches already.
  void Take(Adapter& state, int s) {
    u64 start = 0;
    const u64 size = source_.OneIn(8) ? state.space[s].range.size / 2 & ~(kPage - 1)
                                      : kPage << source_.Below(12);
    if (size == 0 || pcilend_range_alloc(&state.space[s].range, size, kPage, &start) != 0) return;
    state.domain.Map(start, kForeign, size);
  }

  void MakeTarget() {
    auto made = std::make_unique<Target>();
    pcilend_target& t = made->target;
    t.kind = static_cast<pcilend_target_kind>(source_.Below(3));
    t.host = static_cast<u32>(source_.Below(hosts.size()));
    t.phys = (t.kind == PCILEND_TARGET_BAR ? 0x400000000000 : 0x100000000) +
             (static_cast<u64>(targets.size()) << 36);
    t.size = kPage << source_.Below(10);
    if (source_.OneIn(8)) t.size = 3 * kGiB / 2;
    for (u32 i = 0; i < adapters.size(); ++i) {
      if (adapters[i].host == t.host && source_.OneIn(4)) PlaceIn(i, *made);
    }
    t.placed = made->placed.data();
    t.placed_count = static_cast<u32>(made->placed.size());
    targets.push_back(std::move(made));
  }

  void PlaceIn(u32 adapter, Target& made) {
    Adapter& state = *states[adapter];
    Space& space = state.space[source_.Below(PCILEND_SPACES)];
    u64 iova = 0;
    if (space.entries.empty() ||
        pcilend_range_alloc(&space.range, made.target.size, kPage, &iova) != 0) {
      return;
    }
    state.domain.Map(iova, made.target.phys, made.target.size);
    made.placed.push_back({adapter, iova});
  }

  std::pair<int, int> WindowAt(u32 host, u64 phys) const {
    if (phys < 1ULL << 52) return {-1, -1};
    for (size_t a = 0; a < adapters.size(); ++a) {
      if (adapters[a].host != host) continue;
      for (size_t w = 0; w < states[a]->windows.size(); ++w) {
        const pcilend_topo_window& window = states[a]->windows[w];
        if (phys >= window.phys && phys - window.phys < window.size) {
          return {static_cast<int>(a), static_cast<int>(w)};
        }
      }
    }
    return {-1, -1};
  }

  bool IsBar(u32 host, u64 phys) const {
    for (const auto& made : targets) {
      const pcilend_target& t = made->target;
      if (t.kind == PCILEND_TARGET_BAR && t.host == host && phys >= t.phys &&
          phys - t.phys < t.size) {
        return true;
      }
    }
    return false;
  }

  Source& source_;
};

// Which ways there are, found by trying every link in every direction.
class Oracle {
 public:
  Oracle(const World& world, const pcilend_resolve_request& request)
      : world_(world), request_(request) {
    first_ = (request.target.phys + request.offset) / kPage * kPage;
    size_ =
        (request.target.phys + request.offset + request.size - first_ + kPage - 1) / kPage * kPage;
  }

  u64 first() const { return first_; }
  u64 size() const { return size_; }

  // Can the function look at all?
  bool CanStart() const {
    const pcilend_topo_host& host = world_.hosts[request_.from.host];
    if (!request_.from.device) return true;
    const bool mmio =
        request_.from.host != request_.target.host || request_.target.kind == PCILEND_TARGET_BAR;
    if (!host.translated || (mmio && !host.p2p)) return false;
    if (request_.from.at == PCILEND_ANYWHERE) return Fits(request_.from.space, kPage) != ~0ULL;
    const u64 at = request_.from.at / kPage * kPage;
    return at + size_ <= 0xfee00000 || at >= 0xfef00000;
  }

  enum Level { kAll, kUp, kUsable };

  // Number of ways with `hops` links, the fewest possible; {0, 0} if there is none.
  std::pair<u32, u64> Shortest(Level level) const {
    std::vector<u64> ways(world_.hosts.size(), 0);
    ways[request_.from.host] = 1;
    for (u32 hops = 0; hops <= PCILEND_PATH_HOPS; ++hops) {
      if (ways[request_.target.host] != 0) return {hops, ways[request_.target.host]};
      std::vector<u64> next(ways.size(), 0);
      for (u32 link = 0; link < world_.links.size(); ++link) {
        for (int end = 0; end < 2; ++end) {
          const u32 to = world_.adapters[world_.links[link].adapter[end]].host;
          const u32 from = world_.adapters[world_.links[link].adapter[1 - end]].host;
          if (ways[from] != 0 && Crosses(link, end, level)) next[to] += ways[from];
        }
      }
      ways = next;
    }
    return {0, 0};
  }

 private:
  bool Crosses(u32 link, int end, Level level) const {
    if (level == kAll) return true;
    if (!world_.links[link].up) return false;
    if (level == kUp) return true;
    const u32 in = world_.links[link].adapter[end];
    const u32 out = world_.links[link].adapter[1 - end];
    const pcilend_topo_host& host = world_.hosts[world_.adapters[in].host];
    const bool last = world_.adapters[in].host == request_.target.host;
    const bool bar = request_.target.kind == PCILEND_TARGET_BAR;
    if (!host.translated || ((!last || bar) && !host.p2p)) return false;
    u64 iova = ~0ULL;
    for (u32 i = request_.target.placed_count; last && i-- > 0;) {
      const pcilend_placed& placed = request_.target.placed[i];
      if (placed.adapter == in) iova = placed.iova + (first_ - request_.target.phys);
    }
    if (iova == ~0ULL) {
      const int space = !last || bar                                   ? PCILEND_SPACE_EXPORTS
                        : request_.target.kind == PCILEND_TARGET_GUEST ? PCILEND_SPACE_SLOTS
                                                                       : PCILEND_SPACE_DMA;
      const pcilend_range* range = world_.adapters[in].space[space];
      const u64 large = size_ >= kGiB ? kGiB : size_ >= kGiB / 512 ? kGiB / 512 : kPage;
      iova = Fits(range, large);
      if (iova == ~0ULL) iova = Fits(range, kPage);
      if (iova == ~0ULL) return false;
    }
    return Seen(*world_.states[in], *world_.states[out], iova);
  }

  // The lowest place, or all ones.
  u64 Fits(const pcilend_range* range, u64 align) const {
    if (range == nullptr || range->count == range->capacity) return ~0ULL;
    std::set<u64> starts = {range->start};
    for (u32 i = 0; i < range->count; ++i) {
      starts.insert(range->entry[i].start + range->entry[i].size);
    }
    for (const u64 start : starts) {
      const u64 at = (start + align - 1) / align * align;
      bool free = at + size_ <= range->start + range->size;
      for (u32 i = 0; i < range->count; ++i) {
        const pcilend_range_entry& used = range->entry[i];
        free = free && (at + size_ <= used.start || used.start + used.size <= at);
      }
      if (free) return at;
    }
    return ~0ULL;
  }

  bool Seen(const Adapter& in, const Adapter& out, u64 iova) const {
    for (u32 w = 0; w < std::min<size_t>(in.layout.windows, out.windows.size()); ++w) {
      const u64 start = in.layout.window[w].translation;
      const u64 end = start + std::min(in.layout.window[w].size, out.windows[w].size);
      if (iova >= start && iova + size_ <= end) return true;
    }
    return false;
  }

  const World& world_;
  const pcilend_resolve_request& request_;
  u64 first_ = 0;
  u64 size_ = 0;
};

// A way that the resolver gave, with its mappings made.
class Way {
 public:
  Way(World& world, const pcilend_resolve_request& request, const pcilend_path& path)
      : world_(world), request_(request), path_(path) {}

  // Makes the mappings as a caller would. Empty, or what is wrong with them.
  std::string Make() {
    if (path_.mappings != path_.hops + (request_.from.device ? 1 : 0)) return "mappings missing";
    for (u32 i = path_.mappings; i-- > 0;) {
      const pcilend_mapping& m = path_.mapping[i];
      if (m.present) continue;
      if (m.domain == PCILEND_DOMAIN_FUNCTION) {
        if (!function_.Map(m.iova, m.phys, m.size)) return "the private domain refuses it";
        continue;
      }
      Adapter& adapter = *world_.states[m.adapter];
      u64 iova = 0;
      if (pcilend_range_alloc(&adapter.space[m.space].range, m.size, m.align, &iova) != 0 ||
          iova != m.iova) {
        return "its place in the aperture is not the one that is free";
      }
      if (!adapter.domain.Map(m.iova, m.phys, m.size)) return "an adapter's domain refuses it";
    }
    return "";
  }

  void Undo() {
    for (u32 i = 0; i < path_.mappings; ++i) {
      const pcilend_mapping& m = path_.mapping[i];
      if (m.present || m.domain == PCILEND_DOMAIN_FUNCTION) continue;
      pcilend_range_free(&world_.states[m.adapter]->space[m.space].range, m.iova, m.size);
      world_.states[m.adapter]->domain.Unmap(m.iova);
    }
    function_ = Domain();
  }

  // Empty, or how reality differs from the request.
  std::string Wrong(const Oracle& oracle) const {
    const u64 byte = request_.target.phys + request_.offset;
    for (const u64 i : {u64{0}, request_.size / 2, request_.size - 1}) {
      if (At(path_.address + i) != Place{request_.target.host, byte + i}) {
        return "byte " + std::to_string(i) + " is not where it should be";
      }
    }
    for (u32 i = 0; i < path_.mappings; ++i) {
      const pcilend_mapping& m = path_.mapping[i];
      if (m.size != oracle.size()) return "a mapping of another size than the range";
      if (m.domain == PCILEND_DOMAIN_ADAPTER && m.present) continue;
      if (MappedWrongly(m, oracle.first())) return "a mapping leads elsewhere, or too far";
    }
    if (!request_.from.device) return "";
    const u64 start = path_.mapping[0].iova;
    if (function_.Find(start - 1) || function_.Find(start + oracle.size())) {
      return "the function reaches beyond the range";
    }
    return "";
  }

  bool Reaches() const { return At(path_.address).has_value(); }

 private:
  std::optional<Place> At(u64 address) const {
    return world_.Walk(request_.from.host, address, request_.from.device ? &function_ : nullptr);
  }

  // All that goes through the mapping ends in the pages asked for, in order.
  bool MappedWrongly(const pcilend_mapping& m, u64 first) const {
    const bool own = m.domain == PCILEND_DOMAIN_FUNCTION;
    const u32 host = own ? request_.from.host : world_.adapters[m.adapter].host;
    const Domain& domain = own ? function_ : world_.states[m.adapter]->domain;
    for (const u64 i : {u64{0}, m.size / 2, m.size - 1}) {
      if (world_.Walk(host, m.iova + i, &domain) != Place{request_.target.host, first + i}) {
        return true;
      }
    }
    return false;
  }

  World& world_;
  const pcilend_resolve_request& request_;
  const pcilend_path& path_;
  Domain function_;
};

// Asks the resolver and compares all it says with the world. Empty, or what is wrong. Mappings of
// the choice stay in the world.
inline std::string Check(World& world, const pcilend_resolve_request& request, u32 capacity) {
  const Oracle oracle(world, request);
  std::vector<u8> distance(world.hosts.size());
  std::vector<pcilend_path> paths(capacity);
  char why[PCILEND_RESOLVE_TEXT_BYTES] = "";
  const int found = pcilend_resolve(&world.topology, &request, distance.data(), paths.data(),
                                    capacity, why, sizeof(why));
  if (found < 0) {
    const std::string text = why;
    if (text.size() < 20 || text.size() + 2 > sizeof(why)) return "a refusal without a sentence";
    if (!oracle.CanStart()) return "";
    if (oracle.Shortest(Oracle::kUsable).second != 0) return "refused: " + text;
    const int expected = oracle.Shortest(Oracle::kAll).second == 0  ? -EHOSTUNREACH
                         : oracle.Shortest(Oracle::kUp).second == 0 ? -ENOTCONN
                                                                    : found;
    if (found != expected) return "refused for another reason: " + text;
    return found == -ENOSPC || found == -EOPNOTSUPP || found == -ENOTCONN || found == -EHOSTUNREACH
               ? ""
               : "unexpected error: " + text;
  }
  if (!oracle.CanStart()) return "granted what the viewpoint can't do";
  const auto [hops, ways] = oracle.Shortest(Oracle::kUsable);
  if (ways == 0) return "granted what can't be reached";
  if (static_cast<u64>(found) != std::min<u64>(ways, capacity)) return "not all shortest paths";
  for (int i = found; i-- > 0;) {
    const pcilend_path& path = paths[i];
    if (path.hops != hops) return "not a shortest path";
    if (i > 0 && !std::lexicographical_compare(paths[i - 1].link, paths[i - 1].link + hops,
                                               path.link, path.link + hops)) {
      return "paths out of order";
    }
    Way way(world, request, path);
    if (const std::string wrong = way.Make(); !wrong.empty()) return wrong;
    if (const std::string wrong = way.Wrong(oracle); !wrong.empty()) return wrong;
    if (i == 0) break;
    way.Undo();
    if (request.from.device && way.Reaches()) return "reached after all was unmapped";
  }
  return "";
}

}  // namespace resolve_world
