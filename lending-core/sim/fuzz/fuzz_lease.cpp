// SPDX-License-Identifier: GPL-2.0-or-later
// One host with the shipping state machines behind a fake transport; its peers are hostile. Input:
// a row of steps, each an opcode and what it needs: messages, raw or half way sensible, what
// administrators and users do, time, links that go down, peers and hosts that boot again.
#include <linux/pcilend.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "../../core/tests/ntb_rules.h"
#include "../../core/tests/resolve_world.h"
#include "../borrower.h"
#include "../lender.h"

namespace {

using namespace pcilend::sim;  // NOLINT: a fuzzer of just this
using resolve_world::Bytes;

constexpr u32 kPeers = 3;
constexpr u32 kFunctions = 3;  // of this host
constexpr u32 kRemotes = 2;    // of each peer
constexpr u32 kNode = 1;       // peers are 2, 3, 4

void Demand(bool condition, const char* promise) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

const pcilend_layout& Layout() {
  static const pcilend_layout layout = [] {
    const ntb_rules::Link link = ntb_rules::Amd({1ULL << 30, 1ULL << 18});
    pcilend_layout made;
    char why[PCILEND_LAYOUT_TEXT_BYTES];
    Demand(pcilend_layout_plan(&link.self, &link.peer, &made, why, sizeof(why)) == 0, "a layout");
    return made;
  }();
  return layout;
}

class Host : public LenderPort, public BorrowerPort {
 public:
  explicit Host(Bytes& bytes) : bytes_(bytes), hardware_(kFunctions + kPeers * kRemotes) {
    std::vector<Lender::Link> lends;
    std::vector<Borrower::Link> borrows;
    for (u32 p = 0; p < kPeers; ++p) {
      own_.push_back(std::make_unique<Aperture>(Layout()));
      far_.push_back(std::make_unique<Aperture>(Layout()));
      Lender::Link lend;
      lend.own = own_[p].get();
      lend.peers = far_[p].get();
      lends.push_back(lend);
      Borrower::Link borrow;
      borrow.node = p + 2;
      borrow.own = own_[p].get();
      borrow.lease_ms = PCILEND_LEASE_MS_DEFAULT;
      borrow.remotes.resize(kRemotes);
      borrows.push_back(borrow);
    }
    lender_ = std::make_unique<Lender>(*this, hardware_, kNode, 0, kFunctions, std::move(lends),
                                       Sabotage::kNone);
    borrower_ =
        std::make_unique<Borrower>(*this, hardware_, kNode, std::move(borrows), Sabotage::kNone);
    Boot();
    for (u32 p = 0; p < kPeers; ++p) Meet(p);
    for (u32 f = 0; f < kFunctions; ++f) Admin(f, PCILEND_LEASE_MAKE_AVAILABLE);
    Pass(2000);
  }

  void Run() {
    while (!bytes_.Empty()) {
      Step();
      Demand(hardware_.wrong().empty(), hardware_.wrong().c_str());
    }
    End();
    Demand(hardware_.wrong().empty(), hardware_.wrong().c_str());
  }

  Time Now() const override { return now_; }
  Time Duration(Work work) override { return work == Work::kFence ? 10 : 200; }
  bool ResetFails() override { return resets_fail_; }
  u32 Number(u32 link, u32 index) const override { return kFunctions + link * kRemotes + index; }
  void SyncLater(u32) override {}
  void React(u32 link, u32 index) override { reactions_.push_back({link, index}); }
  void Later(Time delay, Work work, u32 function, u32 lease) override {
    work_.push_back({now_ + delay, work, function, lease});
  }
  void Send(u32 p, u16 type, bool answer, u16 status, u32 request, const void* payload) override {
    // Late answers find no link; all that is sent keeps to the protocol and to access rights.
    if (!lender_->link(p).up) return;
    Slot slot;
    void* body = pcilend_wire_begin(slot.data(), type, answer, status, request, sent_[p], boot_);
    if (payload != nullptr) {
      std::memcpy(body, payload, static_cast<size_t>(pcilend_wire_length(type, answer)));
    }
    const char* why = "";
    Demand(pcilend_wire_check(slot.data(), boot_, sent_[p]++, &why) == 0, why);
    if (type == PCILEND_MSG_FUNCTION ||
        (type == PCILEND_MSG_BORROW && answer && status == PCILEND_STATUS_OK)) {
      const u32 f = pcilend_id_index(Body<pcilend_msg_id>(slot).id) - 1;
      Demand(
          lender_->link(p).connected && pcilend_access_allows(&lender_->function(f).access, p + 2),
          "who may not see a function is told nothing of it");
    }
  }
  bool Ask(u32 p, u16 type, u32 request, const void* payload) override {
    Send(p, type, false, 0, request, payload);
    return lender_->link(p).up;
  }

 private:
  struct Due {
    Time at;
    Work work;
    u32 function;
    u32 lease;
  };

  u32 Pick(u32 end) { return static_cast<u32>(bytes_.Below(end)); }

  void Boot() {
    boot_ += 2;
    work_.clear();
    reactions_.clear();
    for (u32 p = 0; p < kPeers; ++p) LinkDown(p);
    lender_->Boot();
    borrower_->Boot(boot_);
    for (u32 p = 0; p < kPeers; ++p) {
      own_[p]->Clear();
      peer_boot_[p] = 0;
    }
  }

  void LinkDown(u32 p) {
    lender_->LinkDown(p);
    borrower_->LinkDown(p);
  }

  void EndSession(u32 p) {
    LinkDown(p);
    if (peer_boot_[p] != 0) {
      lender_->PeerDead(p, p + 2, peer_boot_[p]);
      borrower_->PeerDead(p);
    }
    ++lender_->link(p).session;
  }

  // A new boot of the peer, or the first.
  void Meet(u32 p) {
    EndSession(p);
    peer_boot_[p] = ++boots_;
    sent_[p] = taken_[p] = 0;
    Lender::Link& link = lender_->link(p);
    link.node = p + 2;
    link.boot = peer_boot_[p];
    pcilend_heartbeat_start(&link.beat, peer_boot_[p], 0, now_);
    LinkUp(p);
  }

  void LinkUp(u32 p) {
    if (peer_boot_[p] == 0) return Meet(p);
    lender_->LinkUp(p);
    borrower_->LinkUp(p);
  }

  void Pass(Time time) {
    const Time until = now_ + time;
    for (int steps = 0; steps < 1000; ++steps) {
      const auto due = std::min_element(work_.begin(), work_.end(),
                                        [](const Due& a, const Due& b) { return a.at < b.at; });
      if (due == work_.end() || due->at > until) break;
      const Due next = *due;
      work_.erase(due);
      now_ = std::max(now_, next.at);
      lender_->Do(next.work, next.function, next.lease);
    }
    now_ = until;
    for (u32 p = 0; p < kPeers; ++p) {
      pcilend_heartbeat& beat = lender_->link(p).beat;
      if (pcilend_heartbeat_silence(&beat, now_) >= PCILEND_LEASE_MS_DEFAULT) borrower_->Silent(p);
      borrower_->Tick(p);
    }
  }

  void Beat(u32 p) {
    pcilend_heartbeat& beat = lender_->link(p).beat;
    pcilend_heartbeat_note(&beat, Pick(8) != 0 ? peer_boot_[p] : 7, beat.value + 1, now_);
  }

  void Admin(u32 f, u32 type) {
    pcilend_lease_event event = {};
    event.type = static_cast<pcilend_lease_event_type>(type);
    event.now = now_;
    event.grace_ms = Pick(4) * 1000;
    lender_->Admin(f, event);
  }

  // Into this host's ring: what passes the check is handled.
  void Receive(u32 p, const Slot& slot) {
    const char* why = nullptr;
    if (!lender_->link(p).up ||
        pcilend_wire_check(slot.data(), peer_boot_[p], taken_[p]++, &why) != 0) {
      return;
    }
    const pcilend_msg_header header = Header(slot);
    if ((header.flags & PCILEND_MSG_FLAG_ANSWER) != 0) {
      borrower_->Answer(p, slot);
    } else if (header.request == 0) {
      borrower_->Notice(p, slot);
    } else {
      lender_->Request(p, slot);
    }
  }

  void RawMessage(u32 p) {
    Slot slot = {};
    const size_t length = Pick(PCILEND_SLOT_BYTES);
    for (size_t i = 0; i < length; ++i) slot[i] = static_cast<u8>(Pick(256));
    Receive(p, slot);
  }

  // Sensible in most of its fields.
  void Message(u32 p) {
    static constexpr u16 kTypes[] = {
        PCILEND_MSG_FUNCTION,     PCILEND_MSG_WITHDRAW,    PCILEND_MSG_LOST,
        PCILEND_MSG_CONNECTED,    PCILEND_MSG_RECALL,      PCILEND_MSG_BORROW,
        PCILEND_MSG_RETURN,       PCILEND_MSG_MAP,         PCILEND_MSG_UNMAP,
        PCILEND_MSG_BUS_MASTER,   PCILEND_MSG_RESET,       PCILEND_MSG_CONFIG_READ,
        PCILEND_MSG_CONFIG_WRITE, PCILEND_MSG_SYNC,        PCILEND_MSG_RESERVE,
        PCILEND_MSG_INTX,         PCILEND_MSG_INTX_RAISED, PCILEND_MSG_REACH,
    };
    const u16 type = kTypes[Pick(std::size(kTypes))];
    const bool request = type >= PCILEND_MSG_BORROW;
    const bool answer = request && Pick(4) == 0;
    const int length = pcilend_wire_length(type, answer);
    Slot slot;
    u8* body = static_cast<u8*>(
        pcilend_wire_begin(slot.data(), type, answer, answer ? static_cast<u16>(Pick(3)) : 0,
                           request ? 1 + Pick(answer ? 16 : 4) : 0, taken_[p], peer_boot_[p]));
    // An id, then a lease where there is one.
    const bool own = request && !answer;
    const u32 index = Pick(kRemotes + 2);
    const u32 words[2] = {
        pcilend_id(static_cast<u16>(own ? kNode : p + 2), static_cast<u16>(index + 1)),
        own && index < kFunctions && Pick(4) != 0 ? lender_->function(index).lease.number
                                                  : Pick(8)};
    std::memcpy(body, words, std::min<size_t>(sizeof(words), static_cast<size_t>(length)));
    if (type == PCILEND_MSG_FUNCTION) {
      const u8 state = static_cast<u8>(1 + Pick(6));
      const u32 borrower = Pick(6);
      const u32 lease = Pick(8);
      pcilend_msg_function info = {};
      info.id = words[0];
      std::memcpy(info.uuid, "pcld\0\0\x80\0\x80", 9);
      info.state = state;
      info.borrower = borrower;
      info.lease = lease;
      std::memcpy(body, &info, sizeof(info));
    } else if (type == PCILEND_MSG_BORROW && !answer) {
      pcilend_msg_borrow borrow = {};
      borrow.id = words[0];
      borrow.lease_ms = PCILEND_LEASE_MS_MIN + Pick(16) * 1000;
      std::memcpy(body, &borrow, sizeof(borrow));
    } else if (type == PCILEND_MSG_MAP || type == PCILEND_MSG_UNMAP) {
      const pcilend_msg_map map = {words[0],
                                   words[1],
                                   u64{Pick(256)} << (12 + Pick(40)),
                                   u64{Pick(256)} << (12 + Pick(24)),
                                   u64{1 + Pick(16)} << (12 + Pick(20)),
                                   Pick(3),
                                   0};
      std::memcpy(body, &map, sizeof(map));
    } else if (type == PCILEND_MSG_RESERVE) {
      pcilend_msg_reserve reserve = {};
      reserve.id = words[0];
      reserve.node = Pick(5);
      if (reserve.node == 0) reserve.uuid[0] = static_cast<u8>(Pick(3));
      reserve.ttl_ms = Pick(8) * 1000;
      std::memcpy(body, &reserve, sizeof(reserve));
    }
    // Some bytes as the fuzzer likes.
    for (u32 n = Pick(3); n > 0; --n) slot[Pick(static_cast<u32>(24 + length))] = Pick(256) & 0xff;
    Receive(p, slot);
  }

  void User(u32 p) {
    const u32 index = Pick(kRemotes);
    switch (Pick(4)) {
      case 0:
        return borrower_->Borrow(p, index, PCILEND_PAGE << Pick(20));
      case 1:
        return borrower_->GiveBack(p, index);
      case 2:
        return borrower_->Use(p, index, static_cast<u16>(PCILEND_MSG_MAP + Pick(7)));
      default:
        if (reactions_.empty()) return;
        const auto [link, remote] = reactions_.back();
        reactions_.pop_back();
        return borrower_->GiveBack(link, remote);
    }
  }

  void Rights(u32 p) {
    const u32 f = Pick(kFunctions);
    const u32 kind = Pick(4);
    if (kind == 0) return lender_->Connect(p, Pick(2) != 0);
    if (kind == 1) {
      lender_->Allow(f, nullptr, 0);
    } else if (kind == 2) {
      const u32 nodes[2] = {2 + Pick(4), 2 + Pick(4)};
      lender_->Allow(f, nodes, Pick(3));
    } else {
      pcilend_reserve wish = {};
      wish.node = Pick(5);
      wish.ttl_ms = Pick(20) * 1000;
      lender_->Reserve(f, wish);
    }
  }

  void Step() {
    static constexpr u32 kAdmin[] = {
        PCILEND_LEASE_ADD,       PCILEND_LEASE_REMOVE,
        PCILEND_LEASE_REVOKE,    PCILEND_LEASE_MAKE_AVAILABLE,
        PCILEND_LEASE_RECALL,    PCILEND_LEASE_MAKE_UNAVAILABLE,
        PCILEND_LEASE_UNPLUGGED, PCILEND_LEASE_RELEASE_QUARANTINE,
    };
    const u32 op = Pick(16);
    const u32 p = Pick(kPeers);
    switch (op) {
      case 0:
        return RawMessage(p);
      case 8:
        return Admin(Pick(kFunctions), kAdmin[Pick(std::size(kAdmin))]);
      case 9:
        return Pass(1 + Pick(1000));
      case 10:
        return Pass(1 + Pick(32) * 1000);
      case 11:
        return Pick(2) != 0 ? LinkUp(p) : LinkDown(p);
      case 12:
        switch (Pick(8)) {
          case 0:
            return Boot();
          case 1:
            return lender_->ResetByOthers(p);
          default:
            return Meet(p);
        }
      case 13:
        return Rights(p);
      case 14:
        return User(p);
      case 15:
        resets_fail_ = Pick(4) == 0;
        return Beat(p);
      default:
        return Message(p);
    }
  }

  // Every peer is gone: nothing is lent, nothing is held, nothing is left.
  void End() {
    for (u32 p = 0; p < kPeers; ++p) {
      EndSession(p);
      for (u32 i = 0; i < kRemotes; ++i) borrower_->GiveBack(p, i);
      Demand(own_[p]->used() == 0, "no bytes of an aperture are leaked");
      Demand(far_[p]->reached.empty(), "no DMA is left");
    }
    for (u32 f = 0; f < kFunctions; ++f) {
      Demand(hardware_.lessee(f).lease == 0, "no lease is left");
    }
  }

  Bytes& bytes_;
  Hardware hardware_;
  Time now_ = 1000;
  u64 boot_ = 1000001;
  u64 boots_ = 1000;
  u64 peer_boot_[kPeers] = {};
  u32 sent_[kPeers] = {};
  u32 taken_[kPeers] = {};
  bool resets_fail_ = false;
  std::vector<std::unique_ptr<Aperture>> own_;
  std::vector<std::unique_ptr<Aperture>> far_;
  std::vector<Due> work_;
  std::vector<std::pair<u32, u32>> reactions_;
  std::unique_ptr<Lender> lender_;
  std::unique_ptr<Borrower> borrower_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const u8* data, size_t size) {
  Bytes bytes(data, std::min<size_t>(size, 4096));
  Host(bytes).Run();
  return 0;
}
