// SPDX-License-Identifier: GPL-2.0-or-later
// A drive that says what the input says: capabilities (8 bytes), then for each command a byte of
// what is made up (bits: its status, its completion, its Identify page, it is not carried out, no
// answer) with its bytes behind.
#include "../tests/fake_controller.h"
#include "bench/bench.h"
#include "pcilend/nvme/controller.h"

namespace {

using namespace pcilend::nvme;

class Liar final : public test::FakeController {
 public:
  explicit Liar(std::span<const uint8_t> input) : input_(input) {
    uint64_t given = 0;
    take(&given, sizeof given);
    capabilities ^= given;
  }

 private:
  void take(void* to, size_t bytes) {
    const size_t there = std::min(bytes, input_.size());
    std::memcpy(to, input_.data(), there);
    input_ = input_.subspan(there);
  }

  uint16_t execute(uint16_t queue, const Sqe& c, uint32_t& result) override {
    lies_ = 0;
    take(&lies_, 1);
    uint16_t status = 0;
    if (!(lies_ & 8)) status = FakeController::execute(queue, c, result);
    if (lies_ & 1) take(&status, sizeof status);
    if (lies_ & 4 && queue == 0 && (c[0] & 0xff) == 6)
      if (std::byte* page = reach(c[6] | static_cast<uint64_t>(c[7]) << 32, 4096, true))
        take(page, 4096);
    return status;
  }

  void forge(uint16_t, std::array<uint32_t, 4>& completion) override {
    if (lies_ & 2) take(completion.data(), sizeof completion);
    if (lies_ & 16) completion[3] ^= 1U << 16;
  }

  std::span<const uint8_t> input_;
  uint8_t lies_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Liar drive({data, size});
  const auto controller = Controller::start(drive, std::chrono::milliseconds(0));
  if (!controller) return 0;
  (void)(*controller)->namespaces();
  BenchOptions options{.transfer = 12 * 1024, .commands = 8, .depth = 3, .write = true};
  options.patience = std::chrono::milliseconds(0);
  const auto name_space = (*controller)->name_space(1);
  if (name_space) (void)run_bench({drive, **controller, *name_space, {}}, options);
  return 0;
}
