// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/resolve.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "resolve_world.h"

namespace {

using resolve_world::Space;

constexpr u64 kPage = PCILEND_PAGE;
constexpr u64 G = 1ULL << 30;
constexpr u64 T = 1ULL << 40;

// A triangle of hosts with the lab's adapters: links 0 and 1 join hosts 0 and 1, link 2 hosts 1
// and 2, link 3 hosts 0 and 2. Adapter 2n and 2n + 1 are those of link n.
class ResolveTest : public ::testing::Test {
 protected:
  ResolveTest() {
    const ntb_rules::Link lab = ntb_rules::Amd({64 * G, 16 * G});
    char why[PCILEND_LAYOUT_TEXT_BYTES];
    EXPECT_EQ(pcilend_layout_plan(&lab.self, &lab.peer, &layout_, why, sizeof(why)), 0);
    const u32 joined[4][2] = {{0, 1}, {0, 1}, {1, 2}, {0, 2}};
    windows_.resize(8);
    exports_.resize(8);
    slots_.resize(8);
    for (u32 i = 0; i < 8; ++i) {
      windows_[i] = {{Window(i, 0), 64 * G}, {Window(i, 1), 16 * G}};
      exports_[i] = Space(T, 16 * G, 4);
      slots_[i] = Space(8 * G, 56 * G, 4);
      adapters_.push_back({joined[i / 2][i % 2],
                           "0000:00:04.0",
                           windows_[i].data(),
                           2,
                           &layout_,
                           {nullptr, &exports_[i].range, &slots_[i].range}});
    }
    for (u32 i = 0; i < 4; ++i) links_.push_back({{2 * i, 2 * i + 1}, true});
    request_.from.at = PCILEND_ANYWHERE;
    request_.target = {PCILEND_TARGET_BAR, 1, 0xc0000000, 0x4000, nullptr, 0};
    request_.size = 0x4000;
  }

  static u64 Window(u64 adapter, u64 window) { return (16 + adapter) * T + window * T / 2; }

  // The choice, or a refusal: its errno, with the sentence in why_.
  int Resolve(u32 capacity = 1) {
    topology_ = {hosts_.data(),
                 adapters_.data(),
                 links_.data(),
                 static_cast<u32>(hosts_.size()),
                 static_cast<u32>(adapters_.size()),
                 static_cast<u32>(links_.size())};
    char why[PCILEND_RESOLVE_TEXT_BYTES] = "";
    EXPECT_EQ(pcilend_topology_check(&topology_, why, sizeof(why)), 0) << why;
    std::vector<u8> distance(hosts_.size());
    paths_.assign(capacity, {});
    const int result = pcilend_resolve(&topology_, &request_, distance.data(), paths_.data(),
                                       capacity, why, sizeof(why));
    why_ = why;
    EXPECT_EQ(result < 0, !why_.empty());
    return result;
  }

  pcilend_layout layout_ = {};
  std::vector<pcilend_topo_host> hosts_ = {{4, true, true}, {8, true, true}, {12, true, true}};
  std::vector<std::vector<pcilend_topo_window>> windows_;
  std::vector<Space> exports_;
  std::vector<Space> slots_;
  std::vector<pcilend_topo_adapter> adapters_;
  std::vector<pcilend_topo_link> links_;
  pcilend_topology topology_ = {};
  pcilend_resolve_request request_ = {};
  std::vector<pcilend_path> paths_;
  std::string why_;
};

TEST_F(ResolveTest, CpuOnTheTargetsHost) {
  request_.from.host = 1;
  request_.offset = 0x123;
  request_.size = 1;
  ASSERT_EQ(Resolve(), 1);
  EXPECT_EQ(paths_[0].address, 0xc0000123u);
  EXPECT_EQ(paths_[0].hops, 0u);
  EXPECT_EQ(paths_[0].mappings, 0u);
}

TEST_F(ResolveTest, PeerFunctionOnTheSameHost) {
  request_.from = {1, true, 0x80000000, nullptr};
  ASSERT_EQ(Resolve(), 1);
  EXPECT_EQ(paths_[0].address, 0x80000000u);
  ASSERT_EQ(paths_[0].mappings, 1u);
  const pcilend_mapping& m = paths_[0].mapping[0];
  EXPECT_EQ(m.domain, PCILEND_DOMAIN_FUNCTION);
  EXPECT_EQ(m.phys, 0xc0000000u);
  EXPECT_EQ(m.size, 0x4000u);
  EXPECT_TRUE(m.mmio);
}

TEST_F(ResolveTest, BarOfALenderFromTheBorrowersCpu) {
  ASSERT_EQ(Resolve(), 1);
  EXPECT_EQ(paths_[0].address, Window(0, 1));
  ASSERT_EQ(paths_[0].mappings, 1u);
  const pcilend_mapping& m = paths_[0].mapping[0];
  EXPECT_EQ(m.domain, PCILEND_DOMAIN_ADAPTER);
  EXPECT_EQ(m.adapter, 1u);
  EXPECT_EQ(m.space, PCILEND_SPACE_EXPORTS);
  EXPECT_EQ(m.iova, T);
  EXPECT_EQ(m.phys, 0xc0000000u);
  EXPECT_FALSE(m.present);
}

// What a lease does: guest memory at its guest-physical address, through the slot it has.
TEST_F(ResolveTest, GuestMemoryOfTheBorrowerFromTheLentFunction) {
  const pcilend_placed placed = {0, 9 * G};
  request_.from = {1, true, 0, nullptr};
  request_.target = {PCILEND_TARGET_GUEST, 0, 4 * G, G, &placed, 1};
  request_.size = G;
  ASSERT_EQ(Resolve(), 1);
  EXPECT_EQ(paths_[0].address, 0u);
  ASSERT_EQ(paths_[0].mappings, 2u);
  EXPECT_EQ(paths_[0].mapping[0].phys, Window(1, 0) + 9 * G);
  EXPECT_TRUE(paths_[0].mapping[1].present);
  EXPECT_EQ(paths_[0].mapping[1].iova, 9 * G);
}

// Two functions of one borrower (host 0), lent by hosts 1 and 2: straight from one to the other.
TEST_F(ResolveTest, FunctionsOfTwoLenders) {
  request_.from = {2, true, 0x100000, nullptr};
  ASSERT_EQ(Resolve(), 1);
  ASSERT_EQ(paths_[0].hops, 1u);
  EXPECT_EQ(paths_[0].link[0], 2u);
  EXPECT_EQ(paths_[0].mapping[0].phys, Window(5, 1));
  EXPECT_EQ(paths_[0].mapping[1].adapter, 4u);
}

TEST_F(ResolveTest, OverAThirdHostIfNeedBe) {
  links_[2].up = false;
  request_.from = {2, true, 0x100000, nullptr};
  ASSERT_EQ(Resolve(4), 2);
  EXPECT_EQ(paths_[0].hops, 2u);
  EXPECT_EQ(std::vector<u32>(paths_[0].link, paths_[0].link + 2), (std::vector<u32>{3, 0}));
  EXPECT_EQ(std::vector<u32>(paths_[1].link, paths_[1].link + 2), (std::vector<u32>{3, 1}));
  const pcilend_path& path = paths_[0];
  ASSERT_EQ(path.mappings, 3u);
  EXPECT_EQ(path.mapping[0].phys, Window(7, 1));
  EXPECT_EQ(path.mapping[1].adapter, 6u);
  EXPECT_EQ(path.mapping[1].phys, Window(0, 1)) << "in the third host, the other adapter's window";
  EXPECT_TRUE(path.mapping[1].mmio);
  EXPECT_EQ(path.mapping[2].adapter, 1u);
  EXPECT_EQ(path.mapping[2].phys, 0xc0000000u);
  hosts_[0].p2p = false;
  EXPECT_EQ(Resolve(), -EOPNOTSUPP);
  EXPECT_EQ(why_,
            "node 4 does not route from device to device: put the adapter and the function below "
            "one switch, or use a host whose root ports do");
}

TEST_F(ResolveTest, SeveralAdaptersSeveralPaths) {
  ASSERT_EQ(Resolve(4), 2);
  EXPECT_EQ(paths_[0].link[0], 0u);
  EXPECT_EQ(paths_[1].link[0], 1u);
  EXPECT_EQ(paths_[1].address, Window(2, 1));
  links_[0].up = false;
  ASSERT_EQ(Resolve(4), 1);
  EXPECT_EQ(paths_[0].link[0], 1u);
}

TEST_F(ResolveTest, OnlyThePagesAskedFor) {
  request_.offset = 0x1ffe;
  request_.size = 4;
  ASSERT_EQ(Resolve(), 1);
  EXPECT_EQ(paths_[0].mapping[0].size, 2 * kPage);
  EXPECT_EQ(paths_[0].mapping[0].phys, 0xc0001000u);
  EXPECT_EQ(paths_[0].address, Window(0, 1) + 0xffe);
  request_.target.size = 0x80;  // a BAR smaller than a page
  request_.offset = 0x10;
  EXPECT_EQ(Resolve(), 1);
  EXPECT_EQ(paths_[0].mapping[0].size, kPage);
}

TEST_F(ResolveTest, RefusalsNameWhatIsMissing) {
  const auto refusal = [this](int error) {
    EXPECT_EQ(Resolve(), error);
    return why_;
  };
  links_[0].up = links_[1].up = links_[2].up = false;
  EXPECT_EQ(refusal(-ENOTCONN),
            "the link between node 4 (adapter 0000:00:04.0) and node 8 (adapter 0000:00:04.0) is "
            "down: see 'pcilend link' and the cable");
  links_.resize(0);
  EXPECT_EQ(refusal(-EHOSTUNREACH),
            "no links lead from node 4 to node 8: join them by an adapter in each");
  links_ = {{{0, 1}, true}};
  hosts_[1].translated = false;
  EXPECT_EQ(refusal(-EOPNOTSUPP),
            "the IOMMU of node 8 does not translate: boot it with intel_iommu=on or amd_iommu=on "
            "and without iommu=pt");
  hosts_[1].translated = true;
  request_.target.size = request_.size = 17 * G;
  EXPECT_EQ(refusal(-ENOSPC),
            "the export region of adapter 0000:00:04.0 of node 8 has at most 16777216 KiB in one "
            "piece, 17825792 KiB are needed: return what is not used, or enlarge the windows");
  request_.target.size = request_.size = 2 * G;
  windows_[0][1].size = G;
  EXPECT_EQ(refusal(-ENOSPC),
            "no memory window of adapter 0000:00:04.0 of node 4 reaches 0x10000000000 in the "
            "aperture of node 8: enlarge its windows");
  request_.target.kind = PCILEND_TARGET_SEGMENT;
  EXPECT_EQ(refusal(-EOPNOTSUPP),
            "nothing can be added to the DMA area of adapter 0000:00:04.0 of node 8: map the "
            "target there first");
}

TEST_F(ResolveTest, RequestsThatMakeNoSense) {
  const pcilend_resolve_request good = request_;
  const auto refusal = [&](auto change) {
    request_ = good;
    change(request_);
    return Resolve();
  };
  using Request = pcilend_resolve_request;
  EXPECT_EQ(refusal([](Request& r) { r.from.host = 3; }), -EINVAL);
  EXPECT_EQ(refusal([](Request& r) { r.target.host = 3; }), -EINVAL);
  EXPECT_EQ(refusal([](Request& r) { r.target.phys = 0x10; }), -EINVAL);
  EXPECT_EQ(refusal([](Request& r) { r.target.phys = 0 - kPage; }), -EINVAL);
  EXPECT_EQ(refusal([](Request& r) { r.size = 0; }), -EINVAL);
  EXPECT_EQ(refusal([](Request& r) { r.offset = 1; }), -ERANGE);
  EXPECT_EQ(refusal([](Request& r) { r.offset = ~0ULL; }), -ERANGE);
  const pcilend_placed elsewhere = {0, 0};
  EXPECT_EQ(refusal([&](Request& r) { r.target.placed = &elsewhere, r.target.placed_count = 1; }),
            -EINVAL);
  const auto device = [&](u64 at) {
    return refusal([at](Request& r) { r.from.device = true, r.from.at = at; });
  };
  EXPECT_EQ(device(0x10), -EINVAL) << "another place in its page";
  EXPECT_EQ(device(0xfeefd000), -ERANGE) << "the interrupt range";
  EXPECT_EQ(device(0xfee00000 - 0x3000), -ERANGE);
  EXPECT_EQ(device(0xfee00000 - 0x4000), 1);
  EXPECT_EQ(device(0 - 0x3000), -ERANGE) << "past the end";
  EXPECT_EQ(device(PCILEND_ANYWHERE), -ENOSPC) << "no space given";
}

TEST_F(ResolveTest, BrokenTopologies) {
  const auto refusal = [this] {
    topology_ = {hosts_.data(),
                 adapters_.data(),
                 links_.data(),
                 static_cast<u32>(hosts_.size()),
                 static_cast<u32>(adapters_.size()),
                 static_cast<u32>(links_.size())};
    char why[PCILEND_RESOLVE_TEXT_BYTES] = "";
    EXPECT_EQ(pcilend_topology_check(&topology_, why, sizeof(why)), -EINVAL);
    return std::string(why);
  };
  links_[3].adapter[0] = 8;
  EXPECT_EQ(refusal(), "a link ends at no adapter");
  links_[3].adapter[0] = 5;
  EXPECT_EQ(refusal(), "a link joins a host with itself");
  links_[3].adapter[0] = 0;
  EXPECT_EQ(refusal(), "two links share an adapter");
  adapters_[7].host = 3;
  EXPECT_EQ(refusal(), "an adapter is in no host");
  windows_[0][0].size = ~0ULL;
  EXPECT_EQ(refusal(), "a window goes past the end of 64 bits");
  windows_[0][0].size = G;
  layout_.window[1].translation = ~0ULL;
  EXPECT_EQ(refusal(), "a translation goes past the end of 64 bits");
  layout_.windows = 17;
  EXPECT_EQ(refusal(), "a layout has too many windows");
}

// Random topologies: what is resolved is what a transaction meets, hop by hop.
TEST(ResolveProperty, EqualsBruteForceWalk) {
  const char* only = std::getenv("PCILEND_SEED");
  const u64 first = only != nullptr ? std::strtoull(only, nullptr, 0) : 1;
  const u64 last = only != nullptr ? first : 100000;
  u64 reached = 0;
  u64 crossed = 0;
  for (u64 seed = first; seed <= last; ++seed) {
    resolve_world::Random random(seed);
    resolve_world::World world(random);
    char why[PCILEND_RESOLVE_TEXT_BYTES] = "";
    ASSERT_EQ(pcilend_topology_check(&world.topology, why, sizeof(why)), 0) << why;
    for (int i = 0; i < 2; ++i) {
      Space function(random.Below(64) * kPage, random.OneIn(4) ? 8 * kPage : 8 * G, 4);
      const pcilend_resolve_request request = world.Request(function);
      const std::string wrong =
          resolve_world::Check(world, request, static_cast<u32>(1 + random.Below(6)));
      ASSERT_EQ(wrong, "") << "request " << i << "; to repeat it: PCILEND_SEED=" << seed;
      const auto [hops, ways] =
          resolve_world::Oracle(world, request).Shortest(resolve_world::Oracle::kUsable);
      reached += ways != 0 ? 1 : 0;
      crossed += ways != 0 && hops > 1 ? 1 : 0;
    }
  }
  if (only != nullptr) return;
  EXPECT_GT(reached, last / 2) << "most requests are refused";
  EXPECT_GT(crossed, last / 40) << "hardly any path crosses a third host";
}

}  // namespace
