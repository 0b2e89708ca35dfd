// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/identify.h"

#include <algorithm>
#include <cstring>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

// Offsets in the controller's page, and the length of texts.
constexpr size_t kSerial = 4;
constexpr size_t kSerialBytes = 20;
constexpr size_t kModel = 24;
constexpr size_t kModelBytes = 40;
constexpr size_t kFirmware = 64;
constexpr size_t kFirmwareBytes = 8;
constexpr size_t kTransferSize = 77;  // MDTS
constexpr size_t kSubmissionEntry = 512;
constexpr size_t kCompletionEntry = 513;
constexpr size_t kNamespaces = 516;
constexpr size_t kWriteCache = 525;
// Of what clients of a shared drive do not see.
constexpr size_t kMultiPath = 76;
constexpr size_t kEvents = 92;          // OAES
constexpr size_t kAdminCommands = 256;  // OACS
constexpr size_t kAborts = 258;
constexpr size_t kEventsAtOnce = 259;
constexpr size_t kPowerByItself = 265;  // APSTA
constexpr size_t kHostMemory = 272;     // HMPRE, HMMIN
constexpr size_t kKeepAlive = 320;
constexpr size_t kSanitize = 328;
constexpr size_t kCommands = 520;  // ONCS
constexpr size_t kFused = 522;
constexpr std::byte kSeveralControllers{2};
constexpr std::byte kReservations{0x20};
// In a namespace's.
constexpr size_t kSize = 0;
constexpr size_t kFormats = 25;
constexpr size_t kFormat = 26;
constexpr size_t kProtection = 29;
constexpr size_t kFormatTable = 128;
constexpr unsigned kFormatsMax = 64;

constexpr uint16_t kDatasetManagement = 1U << 2;
constexpr uint16_t kWriteZeroes = 1U << 3;
// Of a descriptor: its type, its length, two bytes, what it says.
constexpr size_t kDescriptorHeader = 4;
constexpr uint8_t kUuid = 3;  // those before it are EUI64 and NGUID
constexpr uint8_t kCommandSet = 4;

constexpr unsigned kSubmissionShift = 6;
constexpr unsigned kCompletionShift = 4;
constexpr unsigned kBlockShiftMin = 9;
constexpr unsigned kBlockShiftMax = 16;

template <class Word>
Word word_at(IdentifyPage page, size_t offset) {
  Word value;
  std::memcpy(&value, page.data() + offset, sizeof value);
  return value;
}

// Padded with spaces; whatever a terminal could take for more than text is a '?'.
std::string text_at(IdentifyPage page, size_t offset, size_t bytes) {
  std::string text(reinterpret_cast<const char*>(page.data()) + offset, bytes);
  text.erase(text.find_last_not_of(std::string_view(" \0", 2)) + 1);
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

// Its low half is the smallest that it takes, its high half the largest.
bool takes(uint8_t entry, unsigned shift) {
  return (entry & 0xf) <= shift && shift <= entry >> 4;
}

}  // namespace

Result<ControllerInfo> parse_controller(IdentifyPage page) {
  if (!takes(word_at<uint8_t>(page, kSubmissionEntry), kSubmissionShift) ||
      !takes(word_at<uint8_t>(page, kCompletionEntry), kCompletionShift))
    return fail(ErrorClass::Unsupported,
                "its queues have no entries of 64 and 16 bytes: it is no drive of NVMe's NVM set");
  ControllerInfo info;
  info.serial = text_at(page, kSerial, kSerialBytes);
  info.model = text_at(page, kModel, kModelBytes);
  info.firmware = text_at(page, kFirmware, kFirmwareBytes);
  info.namespaces = word_at<uint32_t>(page, kNamespaces);
  info.volatile_cache = (word_at<uint8_t>(page, kWriteCache) & 1) != 0;
  const auto optional = word_at<uint16_t>(page, kCommands);
  info.deallocates = (optional & kDatasetManagement) != 0;
  info.writes_zeroes = (optional & kWriteZeroes) != 0;
  info.events = word_at<uint32_t>(page, kEvents);
  // In pages, as a power of two; 0: any size.
  const unsigned shift = word_at<uint8_t>(page, kTransferSize);
  info.transfer = kTransferMax;
  if (shift != 0 && shift < 32) info.transfer = std::min(kTransferMax, kPage << shift);
  return info;
}

Result<std::vector<uint32_t>> parse_active_namespaces(IdentifyPage page) {
  std::vector<uint32_t> ids;
  for (size_t at = 0; at < kPage; at += sizeof(uint32_t)) {
    const auto id = word_at<uint32_t>(page, at);
    if (id == 0) break;
    if (!ids.empty() && id <= ids.back())
      return fail(ErrorClass::Failure, "the drive's list of namespaces is not in order");
    ids.push_back(id);
  }
  return ids;
}

Result<NamespaceInfo> parse_namespace(uint32_t id, IdentifyPage page) {
  NamespaceInfo info;
  info.id = id;
  info.blocks = word_at<uint64_t>(page, kSize);
  if (info.blocks == 0)
    return fail(ErrorClass::NotFound, "the drive has no namespace {}, or it is not attached", id);
  // Bits 6:5 of it count where there are more than 16.
  const auto chosen = word_at<uint8_t>(page, kFormat);
  unsigned format = chosen & 0xf;
  if (word_at<uint8_t>(page, kFormats) >= 16) format |= (chosen >> 5 & 3U) << 4;
  static_assert(kFormatTable + kFormatsMax * sizeof(uint32_t) <= kPage);
  const auto entry = word_at<uint32_t>(page, kFormatTable + format * sizeof(uint32_t));
  const unsigned shift = entry >> 16 & 0xff;
  if ((entry & 0xffff) != 0 || (word_at<uint8_t>(page, kProtection) & 7) != 0)
    return fail(ErrorClass::Unsupported,
                "blocks of namespace {} have metadata: format it without (nvme format)", id);
  if (shift < kBlockShiftMin || shift > kBlockShiftMax)
    return fail(ErrorClass::Unsupported,
                "blocks of namespace {} have 2^{} bytes: 512 to 65536 can "
                "be used",
                id, shift);
  info.block_bytes = 1U << shift;
  return info;
}

void read_descriptors(IdentifyPage page, NamespaceInfo& name_space) {
  name_space.command_set = 0;
  name_space.identity.clear();
  for (size_t at = 0; at + kDescriptorHeader < kPage;) {
    const auto type = word_at<uint8_t>(page, at);
    const size_t length = word_at<uint8_t>(page, at + 1);
    at += kDescriptorHeader;
    if (type == 0 || length == 0 || length > kPage - at) return;
    if (type == kCommandSet && length == 1) name_space.command_set = word_at<uint8_t>(page, at);
    if (type <= kUuid) {
      const auto* const bytes = reinterpret_cast<const uint8_t*>(page.data()) + at;
      name_space.identity += fmt::format("{}{:02x}", name_space.identity.empty() ? "" : " ",
                                         fmt::join(bytes, bytes + length, ""));
    }
    at += length;
  }
}

void hide_what_is_shared(std::span<std::byte, kPage> controller) {
  const auto clear = [&](size_t at, size_t bytes) {
    std::ranges::fill(controller.subspan(at, bytes), std::byte{});
  };
  controller[kMultiPath] |= kSeveralControllers;
  clear(kEvents, 4);
  clear(kAdminCommands, 2);
  clear(kAborts, 1);
  clear(kEventsAtOnce, 1);
  clear(kPowerByItself, 1);
  clear(kHostMemory, 8);
  clear(kKeepAlive, 2);
  clear(kSanitize, 4);
  controller[kCommands] &= ~kReservations;
  clear(kFused, 2);
}

Health parse_health(std::span<const std::byte, kHealthBytes> log) {
  Health health;
  health.warnings = static_cast<uint8_t>(log[0]);
  std::memcpy(&health.kelvin, log.data() + 1, sizeof health.kelvin);
  health.percent_used = static_cast<uint8_t>(log[5]);
  std::memcpy(&health.power_cycles, log.data() + 112, sizeof health.power_cycles);  // its low half
  return health;
}

}  // namespace pcilend::nvme
