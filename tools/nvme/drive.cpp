// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/drive.h"

#include <algorithm>
#include <iterator>

#include "near_device.h"
#include "pcilend/nvme/controller.h"
#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

constexpr uint16_t kVector = 1;  // the admin queues' is 0
constexpr int kEventsMax = 8;    // at once, of a drive that does not stop to tell

class AloneDrive final : public Drive {
 public:
  AloneDrive(std::unique_ptr<Device> device, std::unique_ptr<Controller> controller, uint64_t epoch)
      : device_(std::move(device)), controller_(std::move(controller)), epoch_(epoch) {}

  Result<> use_own_memory() {
    const auto memory = controller_->open_memory();
    if (!memory) return tl::unexpected(memory.error());
    const auto bytes = device_->bar(memory->bar, memory->offset, memory->bytes);
    if (!bytes) return tl::unexpected(bytes.error());
    near_.emplace(*device_, *bytes, memory->address);
    return {};
  }

  [[nodiscard]] Device& device() override {
    return near_ ? static_cast<Device&>(*near_) : *device_;
  }
  [[nodiscard]] Queues& queues() override { return *controller_; }
  [[nodiscard]] const ControllerInfo& info() const override { return controller_->info(); }
  [[nodiscard]] Result<std::vector<uint32_t>> namespaces() override {
    return controller_->namespaces();
  }
  [[nodiscard]] Result<NamespaceInfo> name_space(uint32_t id) override {
    return controller_->name_space(id);
  }
  [[nodiscard]] Result<Health> health() override { return controller_->health(); }
  [[nodiscard]] Result<NamespaceChanges> changes() override {
    NamespaceChanges all;
    for (int events = 0; events < kEventsMax; ++events) {
      const auto event = controller_->next_event();
      if (!event) return tl::unexpected(event.error());
      if (!*event) break;
      if (!(*event)->changes) continue;
      all.all |= (*event)->changes->all;
      std::ranges::copy((*event)->changes->ids, std::back_inserter(all.ids));
    }
    return all;
  }
  [[nodiscard]] std::optional<uint16_t> vector() const override { return kVector; }
  [[nodiscard]] bool lost() const override { return device_->epoch() != epoch_; }

 private:
  std::unique_ptr<Device> device_;  // outlives the controller
  std::unique_ptr<Controller> controller_;
  std::optional<NearDevice> near_;
  uint64_t epoch_;
};

}  // namespace

Result<> Drive::clear(const ClientName& client) {
  return fail(ErrorClass::Unsupported, "a drive that is not shared has no client {}", client.lease);
}

Result<std::unique_ptr<Drive>> Drive::open_alone(const ThisHost& host, FunctionId id,
                                                 std::string_view owner, uint64_t slice,
                                                 DrivePlace place) {
  auto device = open_leased(host, id, owner, slice, place == DrivePlace::Near);
  if (!device) return tl::unexpected(std::move(device).error());
  const uint64_t epoch = (*device)->epoch();
  auto controller = Controller::start(**device);
  if (!controller) return tl::unexpected(std::move(controller).error());
  auto drive = std::make_unique<AloneDrive>(std::move(*device), std::move(*controller), epoch);
  if (place == DrivePlace::Own) PCILEND_TRY(drive->use_own_memory());
  return drive;
}

}  // namespace pcilend::nvme
