// SPDX-License-Identifier: GPL-2.0-or-later
// A client that asks its manager what the input says, and a manager that answers so: for each mail
// a byte of its length, then its bytes. The manager's drive must not be given an address that is
// not the client's.
#include "../tests/fake_share.h"
#include "pcilend/nvme/queue_pair.h"
#include "pcilend/share.h"

namespace {

using namespace pcilend;
using namespace pcilend::nvme;

class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  std::vector<std::byte> mail() {
    const size_t wanted = bytes_.empty() ? 0 : bytes_[0] % (kMailMax + 1);
    bytes_ = bytes_.subspan(std::min<size_t>(1, bytes_.size()));
    const auto taken = std::as_bytes(bytes_.first(std::min(wanted, bytes_.size())));
    bytes_ = bytes_.subspan(taken.size());
    return {taken.begin(), taken.end()};
  }

 private:
  std::span<const uint8_t> bytes_;
};

// Answers with the input, with the number that was asked if its own is 0.
class Liar final : public ClientLease {
 public:
  explicit Liar(Input input) : input_(input) {}
  [[nodiscard]] std::string name() const override { return "40001"; }
  [[nodiscard]] uint32_t lease() const override { return 1; }
  [[nodiscard]] uint32_t vectors() const override { return 1; }
  void ring(size_t offset, uint32_t) override {
    if (offset < 0x1000 || offset > 0x2000 - 4) __builtin_trap();
  }
  Result<std::unique_ptr<Memory>> allocate(size_t bytes, const Access& access) override {
    return drive_.allocate(bytes, access);
  }
  Result<std::span<std::byte>> connect(FunctionId) override { return near_; }
  Result<std::span<std::byte>> bar(uint32_t, uint64_t, size_t bytes) override {
    if (bytes > near_.size()) return fail(ErrorClass::Permission, "less");
    return std::span(near_).first(bytes);
  }
  Result<UniqueFd> interrupt(uint32_t vector) override { return drive_.interrupt(vector); }
  Result<> end_interrupt(uint32_t vector) override { return drive_.end_interrupt(vector); }
  Result<std::vector<std::byte>> ask(std::span<const std::byte> question,
                                     std::chrono::milliseconds) override {
    if (input_.empty()) over_ = true;
    if (over_) return tl::unexpected(Error{ErrorClass::State, "over"});
    auto answer = input_.mail();
    if (answer.size() >= 8 && mail::number_of(answer) == 0)
      std::copy_n(question.begin() + 4, 4, answer.begin() + 4);
    return answer;
  }
  void leave() override { over_ = true; }
  [[nodiscard]] uint64_t epoch() const override { return 0; }
  [[nodiscard]] bool over() const override { return over_; }
  [[nodiscard]] int fd() const override { return -1; }

 private:
  Input input_;
  test::FakeController drive_;
  std::vector<std::byte> near_ = std::vector<std::byte>(size_t{4} * kPage);
  bool over_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::chrono::milliseconds none(0);
  {
    test::FakeController drive;
    test::FakeShare share(drive);
    auto manager = Manager::open(drive, share, {.patience = std::chrono::milliseconds(20)},
                                 [](const std::string&) {});
    if (!manager) __builtin_trap();
    share.pump = [&] { (void)(*manager)->serve(); };
    test::FakeClientLease client(share, 8);
    const auto slice = client.allocate(64 * kPage, {});
    for (Input input({data, size}); !input.empty();) (void)client.ask(input.mail(), none);
    client.leave();
    if (drive.io_queues() != 0) __builtin_trap();
    share.pump = [] {};
  }
  const auto drive = join_by(std::make_unique<Liar>(Input({data, size})), none);
  if (!drive) return 0;
  (void)(*drive)->namespaces();
  (void)(*drive)->name_space(1);
  (void)(*drive)->changes();
  const auto pair = QueuePair::create((*drive)->device(), (*drive)->queues(), {});
  return 0;
}
