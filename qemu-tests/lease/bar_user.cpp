// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-bar-user: as a program of a GPU does it: has a dma-buf of memory in a BAR, gives it to
// another program as descriptor 9, and looks at that memory itself.
//
//	EXPORTER BYTES TAKE COMMAND...
//
// EXPORTER: /dev/pcilend-bar (pcilend_bar.ko), or the PCI address of a function that VFIO has,
// whose BAR 2 it is then (kernels from 7.0 on). When the file TAKE is there the BAR is taken from
// all who have the dma-buf, and its first BYTES are zeroed. At its end: `seen CKSUM`, of these, as
// cksum(1) has it. The exit status is the command's.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pcilend/fd.h"
#include "pcilend/result.h"
#include "vfio/device.h"

namespace {

using namespace pcilend;

constexpr unsigned kExport = 0;  // of pcilend_bar.ko
constexpr unsigned kTake = 1;
// Of VFIO: as linux/vfio.h of newer kernels has it.
constexpr uint32_t kFeatureGetDmaBuf = 1U << 16 | 11;
constexpr uint32_t kVfioBar = 2;
constexpr uint32_t kCommandRegister = 4;
constexpr uint16_t kMemorySpace = 2;
constexpr int kDescriptor = 9;
constexpr useconds_t kLook = 20000;
constexpr size_t kPage = 4096;

uint32_t step(uint32_t crc, uint8_t byte) {
  crc ^= static_cast<uint32_t>(byte) << 24;
  for (int bit = 0; bit < 8; ++bit) crc = crc << 1 ^ (crc >> 31 ? 0x04c11db7U : 0U);
  return crc;
}

// Of registers of eight bytes.
uint32_t cksum(std::span<std::byte> bytes) {
  const auto* const words = reinterpret_cast<const volatile uint64_t*>(bytes.data());
  uint32_t crc = 0;
  for (size_t at = 0; at < bytes.size() / sizeof(uint64_t); ++at) {
    const uint64_t word = words[at];
    for (unsigned byte = 0; byte < sizeof word; ++byte)
      crc = step(crc, static_cast<uint8_t>(word >> 8 * byte));
  }
  for (uint64_t left = bytes.size(); left != 0; left >>= 8)
    crc = step(crc, static_cast<uint8_t>(left));
  return ~crc;
}

// Who has the BAR.
class Exporter {
 public:
  virtual ~Exporter() = default;
  [[nodiscard]] virtual int buffer() const = 0;
  [[nodiscard]] virtual std::span<std::byte> bytes() const = 0;
  virtual Result<> take() = 0;
};

class Driver final : public Exporter {
 public:
  static Result<std::unique_ptr<Exporter>> open(const std::string& path, size_t bytes) {
    auto driver = std::make_unique<Driver>();
    driver->device_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!driver->device_) return fail_errno(path);
    driver->buffer_ = UniqueFd(::ioctl(driver->device_.get(), kExport));
    if (!driver->buffer_) return fail_errno("export of a BAR");
    auto view = Mapping::map(driver->buffer_.get(), 0, bytes, true);
    if (!view) return tl::unexpected(std::move(view).error());
    driver->view_ = std::move(*view);
    return driver;
  }
  [[nodiscard]] int buffer() const override { return buffer_.get(); }
  [[nodiscard]] std::span<std::byte> bytes() const override { return view_.bytes(); }
  Result<> take() override {
    if (::ioctl(device_.get(), kTake) < 0) return fail_errno("taking the BAR");
    return {};
  }

 private:
  UniqueFd device_;
  UniqueFd buffer_;
  Mapping view_;
};

class VfioUser final : public Exporter {
 public:
  explicit VfioUser(vfio::Device device) : device_(std::move(device)) {}
  static Result<std::unique_ptr<Exporter>> open(const std::string& address, size_t bytes) {
    auto device = vfio::Device::open(address);
    if (!device) return tl::unexpected(std::move(device).error());
    PCILEND_TRY(device->enable());
    const auto region = device->region(kVfioBar);
    if (!region) return tl::unexpected(region.error());
    auto view = device->map(kVfioBar);
    if (!view) return tl::unexpected(std::move(view).error());
    if (view->bytes().size() < bytes)
      return fail(ErrorClass::Usage, "BAR {} has {} bytes", kVfioBar, view->bytes().size());
    struct {
      uint32_t argsz, flags;
      uint32_t region, open_flags, dma_flags, ranges;
      uint64_t offset, length;
    } wish{sizeof wish, kFeatureGetDmaBuf, kVfioBar, O_RDWR | O_CLOEXEC, 0, 1, 0, region->size};
    auto user = std::make_unique<VfioUser>(std::move(*device));
    user->view_ = std::move(*view);
    user->bytes_ = bytes;
    user->buffer_ = UniqueFd(::ioctl(user->device_.fd(), VFIO_DEVICE_FEATURE, &wish));
    if (!user->buffer_) return fail_errno("VFIO_DEVICE_FEATURE_DMA_BUF");
    return user;
  }
  [[nodiscard]] int buffer() const override { return buffer_.get(); }
  [[nodiscard]] std::span<std::byte> bytes() const override { return view_.bytes().first(bytes_); }
  // VFIO takes it from others when the function does not decode memory.
  Result<> take() override {
    const auto command = device_.config_word(kCommandRegister);
    if (!command) return tl::unexpected(command.error());
    PCILEND_TRY(
        device_.set_config_word(kCommandRegister, static_cast<uint16_t>(*command & ~kMemorySpace)));
    return device_.set_config_word(kCommandRegister, *command);
  }

 private:
  vfio::Device device_;
  Mapping view_;
  size_t bytes_ = 0;
  UniqueFd buffer_;
};

[[noreturn]] void become(int buffer, std::span<char*> command) {
  std::vector<char*> words(command.begin(), command.end());
  words.push_back(nullptr);
  if (::dup2(buffer, kDescriptor) == kDescriptor) ::execvp(words[0], words.data());
  std::cerr << words[0] << ": " << std::strerror(errno) << "\n";
  ::_exit(127);
}

Result<int> use(const std::string& exporter_name, const std::string& bytes_text,
                const std::string& take, std::span<char*> command) {
  size_t bytes = 0;
  const auto end = std::from_chars(bytes_text.data(), bytes_text.data() + bytes_text.size(), bytes);
  if (end.ec != std::errc() || bytes == 0 || bytes % kPage != 0)
    return fail(ErrorClass::Usage, "'{}' bytes are no whole pages", bytes_text);
  const auto opened = exporter_name.starts_with('/') ? Driver::open(exporter_name, bytes)
                                                     : VfioUser::open(exporter_name, bytes);
  if (!opened) return tl::unexpected(opened.error());
  Exporter& exporter = **opened;
  const pid_t child = ::fork();
  if (child < 0) return fail_errno("fork");
  if (child == 0) become(exporter.buffer(), command);
  int status = 0;
  for (bool taken = false; ::waitpid(child, &status, WNOHANG) == 0; ::usleep(kLook)) {
    if (taken || ::access(take.c_str(), F_OK) != 0) continue;
    PCILEND_TRY(exporter.take());
    auto* const words = reinterpret_cast<volatile uint64_t*>(exporter.bytes().data());
    for (size_t at = 0; at < bytes / sizeof(uint64_t); ++at) words[at] = 0;
    std::cout << "taken" << std::endl;
    taken = true;
  }
  std::cout << "seen " << cksum(exporter.bytes()) << std::endl;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::cerr << "usage: bar-user EXPORTER BYTES TAKE COMMAND...\n";
    return static_cast<int>(ErrorClass::Usage);
  }
  const std::span<char*> arguments(argv, static_cast<size_t>(argc));
  const auto done = use(argv[1], argv[2], argv[3], arguments.subspan(4));
  if (done) return *done;
  std::cerr << done.error().message << "\n";
  return static_cast<int>(done.error().kind);
}
