// SPDX-License-Identifier: GPL-2.0-or-later
// A drive that is shared, in one process: its lender, made up, between a manager and clients.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "fake_controller.h"
#include "manager/manager.h"
#include "pcilend/nvme/client_lease.h"

namespace pcilend::nvme::test {

constexpr uint32_t kLenderNode = 4;

class FakeShare final : public ManagerLease {
 public:
  struct Guest {
    ClientNotice notice;
    std::optional<std::vector<std::byte>> question;
    std::optional<std::vector<std::byte>> answer;
    uint64_t epoch = 0;
    bool over = false;
    uint64_t next = 0;  // of its slice
  };

  explicit FakeShare(FakeController& drive) : drive(drive) {}

  FakeController& drive;
  std::optional<SharePolicy> policy;
  std::map<uint32_t, Guest> guests;  // from their join to their end, which is confirmed
  std::map<uint32_t, std::span<std::byte>> segments;
  std::function<void()> pump = [] {};         // the manager does what there is to do
  std::function<void()> before_mail = [] {};  // is looked for
  bool near_fails = false;
  std::set<uint32_t> fenced_nodes;
  bool keeping_fails = false;

  [[nodiscard]] Guest& add(uint32_t node) {
    const uint32_t lease = ++last_lease_;
    Guest& guest = guests[lease];
    guest.notice = {.lease = lease,
                    .node = node,
                    .slice = uint64_t{lease} << 40,
                    .slice_bytes = kSliceBytes,
                    .vector = 1 + (lease - 1) * policy->vectors,
                    .vectors = policy->vectors,
                    .piece = lease - 1};
    guest.next = guest.notice.slice;
    news_.push_back(guest.notice);
    return guest;
  }
  // Its host boots: those who have joined before are nobody, and are told nothing.
  void reboot() {
    guests.clear();
    news_.clear();
    last_lease_ = 0;
    ++boots_;
  }
  [[nodiscard]] uint32_t boots() const { return boots_; }
  // Its link is lost, or it ends, however.
  void tell(uint32_t lease, uint32_t news) {
    const auto it = guests.find(lease);
    if (it == guests.end()) return;
    ++it->second.epoch;
    it->second.over |= news == PCILEND_NEWS_GONE;
    it->second.question.reset();
    ClientNotice notice = it->second.notice;
    notice.news = news;
    notice.round = ++round_;
    news_.push_back(notice);
  }

  Result<uint32_t> node() override { return kLenderNode; }
  Result<> share(const SharePolicy& wanted) override {
    policy = wanted;
    if (wanted.clients == 0)
      for (const auto& [lease, guest] : guests)
        if (!guest.over) tell(lease, PCILEND_NEWS_GONE);
    return {};
  }
  Result<std::optional<ClientNotice>> next_client() override {
    if (news_.empty()) return std::nullopt;
    const ClientNotice notice = news_.front();
    news_.pop_front();
    return notice;
  }
  Result<> cleared(const ClientNotice& notice) override {
    if (notice.news == PCILEND_NEWS_GONE) guests.erase(notice.lease);
    return {};
  }
  Result<std::optional<Mail>> next_mail() override {
    before_mail();
    for (auto& [lease, guest] : guests)
      if (guest.question) {
        Mail mail{lease, std::move(*guest.question)};
        guest.question.reset();
        return mail;
      }
    return std::nullopt;
  }
  Result<> send_mail(const Mail& mail) override {
    const auto it = guests.find(mail.client);
    if (it == guests.end()) return fail(ErrorClass::NotFound, "no such client");
    it->second.answer = mail.bytes;
    return {};
  }
  Result<std::set<uint32_t>> fenced() override { return fenced_nodes; }
  Result<> keep_fenced(const std::set<uint32_t>& nodes) override {
    if (keeping_fails) return fail(ErrorClass::Failure, "no room on the disk");
    fenced_nodes = nodes;
    return {};
  }
  Result<std::unique_ptr<NearMemory>> make_near(uint32_t, size_t bytes) override;

 private:
  static constexpr uint64_t kSliceBytes = uint64_t{64} << 20;

  std::deque<ClientNotice> news_;
  uint32_t last_lease_ = 0;
  uint32_t boots_ = 0;
  uint32_t round_ = 0;
};

class FakeNear final : public NearMemory {
 public:
  FakeNear(FakeShare& share, uint32_t segment, std::unique_ptr<Memory> memory)
      : share_(share), segment_(segment), memory_(std::move(memory)) {
    share_.segments[segment_] = memory_->bytes();
  }
  FakeNear(const FakeNear&) = delete;
  FakeNear& operator=(const FakeNear&) = delete;
  ~FakeNear() override { share_.segments.erase(segment_); }
  [[nodiscard]] FunctionId segment() const override { return {segment_}; }
  [[nodiscard]] uint64_t address() const override { return memory_->address(); }
  [[nodiscard]] size_t bytes() const override { return memory_->bytes().size(); }

 private:
  FakeShare& share_;
  uint32_t segment_;
  std::unique_ptr<Memory> memory_;
};

inline Result<std::unique_ptr<NearMemory>> FakeShare::make_near(uint32_t, size_t bytes) {
  if (near_fails) return fail(ErrorClass::State, "no room");
  uint32_t segment = kLenderNode << 16 | 1;
  while (segments.contains(segment)) ++segment;
  return std::make_unique<FakeNear>(*this, segment,
                                    drive.place(uint64_t{segment} << 44, bytes, false));
}

// Of a client; that a process is killed is over() with nothing told to the manager by it.
class FakeClientLease : public ClientLease {
 public:
  FakeClientLease(FakeShare& share, uint32_t node)
      : share_(share), boot_(share.boots()), lease_(share.add(node).notice.lease) {}
  FakeClientLease(const FakeClientLease&) = delete;
  FakeClientLease& operator=(const FakeClientLease&) = delete;
  ~FakeClientLease() override { FakeClientLease::leave(); }

  [[nodiscard]] std::string name() const override { return "40001"; }
  [[nodiscard]] uint32_t lease() const override { return lease_; }
  [[nodiscard]] uint32_t vectors() const override { return share_.policy->vectors; }
  void ring(size_t offset, uint32_t value) override { share_.drive.store(offset, value); }
  Result<std::unique_ptr<Memory>> allocate(size_t bytes, const Access& access) override {
    FakeShare::Guest* const guest = find();
    if (!guest) return fail(ErrorClass::State, "over");
    auto memory = share_.drive.place(guest->next, bytes, access.device_writes);
    guest->next += memory->bytes().size() + kPage;
    return memory;
  }
  Result<std::span<std::byte>> connect(FunctionId segment) override {
    const auto it = share_.segments.find(segment.value);
    if (it == share_.segments.end()) return fail(ErrorClass::NotFound, "no such segment");
    return it->second;
  }
  Result<std::span<std::byte>> bar(uint32_t index, uint64_t offset, size_t bytes) override {
    return share_.drive.bar(index, offset, bytes);
  }
  Result<UniqueFd> interrupt(uint32_t vector) override {
    return share_.drive.interrupt(find()->notice.vector + vector);
  }
  Result<> end_interrupt(uint32_t) override { return {}; }
  Result<std::vector<std::byte>> ask(std::span<const std::byte> question,
                                     std::chrono::milliseconds) override {
    if (over()) return fail(ErrorClass::State, "over");
    find()->question.emplace(question.begin(), question.end());
    find()->answer.reset();
    share_.pump();
    FakeShare::Guest* const guest = find();
    if (!guest || guest->over) return fail(ErrorClass::State, "over");
    if (!guest->answer) return fail(ErrorClass::Unreachable, "no answer");
    return *guest->answer;
  }
  void leave() override {
    if (silent_) return;
    if (!over()) share_.tell(lease_, PCILEND_NEWS_GONE);
    share_.pump();
  }
  [[nodiscard]] uint64_t epoch() const override {
    const FakeShare::Guest* const guest = find();
    return guest ? guest->epoch : ~uint64_t{0};
  }
  [[nodiscard]] bool over() const override {
    const FakeShare::Guest* const guest = find();
    return !guest || guest->over;
  }
  [[nodiscard]] int fd() const override { return -1; }

 protected:
  bool silent_ = false;  // its lender does not hear of its end

 private:
  [[nodiscard]] FakeShare::Guest* find() const {
    const auto it = share_.guests.find(lease_);
    return it == share_.guests.end() || boot_ != share_.boots() ? nullptr : &it->second;
  }

  FakeShare& share_;
  uint32_t boot_;
  uint32_t lease_;
};

}  // namespace pcilend::nvme::test
