// SPDX-License-Identifier: GPL-2.0-or-later
// A drive that others share: this process's queues, doorbells and memory of it. All else its
// manager is asked for.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "near_pages.h"
#include "pcilend/nvme/client_lease.h"
#include "pcilend/nvme/mail.h"
#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Registers, of which it has none, and the page of doorbells behind them.
constexpr size_t kDoorbells = 0x1000;
constexpr size_t kRegisterBytes = 0x2000;
constexpr auto kStep = 100ms;
constexpr milliseconds kNews = 2s;  // for what is asked again anyway

class JoinedDrive final : public Drive, private Device, private Queues {
 public:
  JoinedDrive(std::unique_ptr<ClientLease> lease, milliseconds patience)
      : lease_(std::move(lease)), patience_(patience), epoch_(lease_->epoch()) {}

  Result<> begin(uint64_t key) {
    key_ = key;
    const auto welcome = ask<mail::Welcome>(mail::Hello{key}, patience_);
    if (!welcome) return tl::unexpected(welcome.error());
    entries_ = welcome->entries;
    changes_ = welcome->changes;
    if (welcome->near_bytes != 0) PCILEND_TRY(connect(*welcome));
    auto info = ask_controller();
    if (!info) return tl::unexpected(std::move(info).error());
    info_ = std::move(*info);
    return {};
  }

  [[nodiscard]] Device& device() override { return *this; }
  [[nodiscard]] Queues& queues() override { return *this; }
  [[nodiscard]] const ControllerInfo& info() const override { return info_; }
  [[nodiscard]] Result<std::vector<uint32_t>> namespaces() override {
    PCILEND_TRY(identify(nvme::Identify::ActiveNamespaces, 0));
    return parse_active_namespaces(page());
  }
  [[nodiscard]] Result<NamespaceInfo> name_space(uint32_t id) override {
    if (id == 0 || id > info_.namespaces)
      return fail(ErrorClass::NotFound, "{} has namespaces 1 to {}: name one", name(),
                  info_.namespaces);
    PCILEND_TRY(identify(nvme::Identify::Namespace, id));
    auto info = parse_namespace(id, page());
    if (info && identify(nvme::Identify::Descriptors, id)) read_descriptors(page(), *info);
    return info;
  }
  [[nodiscard]] Result<Health> health() override {
    PCILEND_TRY(make_page());
    PCILEND_TRY(confirmed(mail::AskLog{kHealthLog, kAllNamespaces, kHealthBytes, page_->address()},
                          patience_));
    return parse_health(page().first<kHealthBytes>());
  }
  [[nodiscard]] Result<NamespaceChanges> changes() override {
    auto answer = ask<mail::Changes>(mail::AskChanges{changes_}, std::min(patience_, kNews));
    if (!answer) return tl::unexpected(std::move(answer).error());
    changes_ = answer->now;
    return std::move(answer->which);
  }
  [[nodiscard]] std::optional<uint16_t> vector() const override {
    return lease_->vectors() ? std::optional<uint16_t>(0) : std::nullopt;
  }
  // Its memory beside the drive is lost with the link, and its queues are deleted.
  [[nodiscard]] bool lost() const override { return lease_->over() || epoch() != epoch_; }
  [[nodiscard]] ClientName client() const override { return {lease_->lease(), key_}; }
  Result<> clear(const ClientName& client) override {
    auto done = confirmed(mail::Clear{client}, patience_);
    if (!done && done.error().kind == ErrorClass::NotFound) return {};
    return done;
  }
  void leave() override { lease_->leave(); }

 private:
  // As a device.
  [[nodiscard]] std::string name() const override { return lease_->name(); }
  // Registers are the manager's.
  [[nodiscard]] uint32_t load(size_t) const override { return ~0U; }
  void store(size_t offset, uint32_t value) override {
    if (!lost()) lease_->ring(offset, value);
  }
  [[nodiscard]] size_t register_bytes() const override { return kRegisterBytes; }
  Result<std::unique_ptr<Memory>> allocate(size_t bytes, const Access& access) override {
    if (near_)
      if (auto memory = near_->allocate(bytes, access)) return memory;
    return lease_->allocate(bytes, access);
  }
  Result<std::span<std::byte>> bar(uint32_t, uint64_t, size_t) override {
    return fail(ErrorClass::Permission, "BARs of {} are its manager's to give", name());
  }
  Result<std::unique_ptr<Reach>> map(int dma_buf) override { return lease_->map(dma_buf); }
  Result<UniqueFd> interrupt(uint32_t vector) override { return lease_->interrupt(vector); }
  Result<> end_interrupt(uint32_t vector) override { return lease_->end_interrupt(vector); }
  [[nodiscard]] uint64_t epoch() const override {
    return cleared_ ? ~uint64_t{0} : lease_->epoch();
  }
  [[nodiscard]] int fd() const override { return lease_->fd(); }

  // As what makes queues.
  [[nodiscard]] QueueLimits limits() const override { return {entries_, info_.transfer}; }
  Result<QueueGrant> create(const QueueRequest& request) override {
    const auto answer = ask<mail::Created>(mail::CreatePair{request}, patience_);
    if (!answer) return tl::unexpected(answer.error());
    const QueueGrant& grant = answer->grant;
    for (const size_t doorbell : {grant.submission_doorbell, grant.completion_doorbell})
      if (doorbell % sizeof(uint32_t) != 0 || doorbell < kDoorbells ||
          doorbell > kRegisterBytes - sizeof(uint32_t))
        return fail(ErrorClass::Failure, "the manager of {} gives a doorbell at {:#x}", name(),
                    doorbell);
    if (lost()) return disturbed();
    return grant;
  }
  // What can't be confirmed ends all: then the lender waits for the manager, or stops the drive.
  void remove(uint16_t id) override {
    const auto until = steady_clock::now() + patience_;
    while (!lease_->over()) {
      const auto done = confirmed(mail::DeletePair{id}, patience_);
      // Not this one's any more: it was deleted when the link was lost.
      if (done || done.error().kind == ErrorClass::NotFound) return;
      if (steady_clock::now() > until) break;
      std::this_thread::sleep_for(kStep);
    }
    lease_->leave();
  }

  Result<> connect(const mail::Welcome& welcome) {
    const auto bytes = welcome.near_segment
                           ? lease_->connect(FunctionId{welcome.near_segment})
                           : lease_->bar(welcome.near_bar, welcome.near_offset, welcome.near_bytes);
    if (!bytes) return tl::unexpected(Error(bytes.error()).in("memory beside the drive"));
    if (welcome.near_bytes != bytes->size() || welcome.near_address % kPage != 0 ||
        bytes->size() % kPage != 0)
      return fail(ErrorClass::Failure,
                  "memory beside {} has {} bytes, and its manager speaks of {} at {:#x}", name(),
                  bytes->size(), welcome.near_bytes, welcome.near_address);
    near_.emplace(*bytes, welcome.near_address);
    return {};
  }

  // Of the page what is looked at.
  Result<ControllerInfo> ask_controller() {
    std::array<std::byte, kPage> all{};
    for (size_t at = 0; at < kLookedAt; at += mail::kPieceBytes) {
      const auto piece =
          ask<mail::Piece>(mail::AskController{static_cast<uint32_t>(at)}, patience_);
      if (!piece) return tl::unexpected(piece.error());
      std::ranges::copy(piece->bytes, all.begin() + static_cast<ptrdiff_t>(at));
    }
    auto info = parse_controller(all);
    if (!info) return tl::unexpected(std::move(info).error().in(name()));
    return info;
  }

  Result<> identify(nvme::Identify what, uint32_t name_space) {
    PCILEND_TRY(make_page());
    return confirmed(mail::AskIdentify{static_cast<uint16_t>(what), name_space, page_->address()},
                     patience_);
  }
  Result<> make_page() {
    if (page_) return {};
    auto page = lease_->allocate(kPage, {.device_reads = false, .host_writes = false});
    if (!page) return tl::unexpected(std::move(page).error());
    page_ = std::move(*page);
    return {};
  }
  [[nodiscard]] IdentifyPage page() const { return page_->bytes().first<kPage>(); }

  [[nodiscard]] tl::unexpected<Error> disturbed() const {
    return fail(ErrorClass::State,
                "{} was reset by others, taken back, or its link was lost: open it again", name());
  }

  Result<> confirmed(const mail::Question& question, milliseconds patience) {
    const auto answer = ask<mail::Confirmed>(question, patience);
    if (!answer) return tl::unexpected(answer.error());
    return {};
  }

  // The answer to this question, of all that may come late.
  template <class Wanted>
  Result<Wanted> ask(const mail::Question& question, milliseconds patience) {
    const std::lock_guard lock(asking_);
    const uint32_t number = ++number_;
    const auto answer = lease_->ask(mail::encode(number, question), patience);
    if (!answer) return tl::unexpected(answer.error());
    const auto letter = mail::decode_answer(*answer);
    if (!letter) return tl::unexpected(Error(letter.error()).in("the manager of " + name()));
    if (const auto* refusal = std::get_if<mail::Refusal>(&letter->what);
        refusal && letter->number == number) {
      if (refusal->error.kind == ErrorClass::Unreachable) cleared_ = true;
      return tl::unexpected(Error(refusal->error).in("the manager of " + name()));
    }
    const auto* wanted = std::get_if<Wanted>(&letter->what);
    if (!wanted || letter->number != number)
      return fail(ErrorClass::Failure, "the manager of {} answers what was not asked", name());
    return *wanted;
  }

  static constexpr size_t kLookedAt = 544;  // bytes of Identify's page

  std::unique_ptr<ClientLease> lease_;
  milliseconds patience_;
  uint64_t epoch_;  // when it was joined
  uint64_t key_ = 0;
  std::atomic<bool> cleared_{false};  // as the manager says, of which the lease may not know yet
  uint32_t entries_ = 0;
  uint64_t changes_ = 0;  // that are known here
  ControllerInfo info_;
  std::optional<NearPages> near_;
  std::unique_ptr<Memory> page_;  // that Identify writes to
  std::mutex asking_;
  uint32_t number_ = 0;
};

}  // namespace

Result<std::unique_ptr<Drive>> join_by(std::unique_ptr<ClientLease> lease, milliseconds patience,
                                       uint64_t key) {
  auto drive = std::make_unique<JoinedDrive>(std::move(lease), patience);
  PCILEND_TRY(drive->begin(key));
  return drive;
}

}  // namespace pcilend::nvme
