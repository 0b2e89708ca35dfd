// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/mail.h"

#include <algorithm>
#include <cstring>

#include "pcilend/result.h"
#include "pcilend/share.h"

namespace pcilend::nvme::mail {
namespace {

enum Topic : uint16_t {
  kHello = 1,
  kCreatePair = 2,
  kDeletePair = 3,
  kIdentify = 4,
  kController = 5,
  kLog = 6,
  kClear = 7,
  kFence = 8,
  kAskChanges = 9,
  kRefusal = 0x100,
  kConfirmed = 0x101,
  kWelcome = 0x102,
  kCreated = 0x103,
  kPiece = 0x104,
  kFenced = 0x105,
  kChanges = 0x106,
};

// On the wire. Of all versions mail begins so.
struct Header {
  uint16_t version = kVersion;
  uint16_t topic = 0;
  uint32_t number = 0;
};
static_assert(sizeof(Header) == 8);

struct HelloWire {
  Header header;
  uint64_t zero;
  uint64_t key;
};
static_assert(sizeof(HelloWire) == 24);

struct ClearWire {
  Header header;
  uint32_t lease;
  uint32_t zero;
  uint64_t key;
};
static_assert(sizeof(ClearWire) == 24);

struct FenceWire {
  Header header;
  uint32_t node;
  uint16_t what;
  uint16_t zero;
};
static_assert(sizeof(FenceWire) == 16);

struct AskChangesWire {
  Header header;
  uint64_t since;
};
static_assert(sizeof(AskChangesWire) == 16);

struct CreateWire {
  Header header;
  uint64_t submission;
  uint64_t completion;
  uint32_t entries;
  uint16_t vector;
  uint16_t interrupts;  // 0 or 1
};
static_assert(sizeof(CreateWire) == 32);

struct DeleteWire {
  Header header;
  uint16_t id;
  uint16_t zero[3];
};
static_assert(sizeof(DeleteWire) == 16);

struct IdentifyWire {
  Header header;
  uint64_t page;
  uint32_t name_space;
  uint16_t what;
  uint16_t zero;
};
static_assert(sizeof(IdentifyWire) == 24);

struct ControllerWire {
  Header header;
  uint32_t offset;
  uint32_t zero;
};
static_assert(sizeof(ControllerWire) == 16);

struct LogWire {
  Header header;
  uint64_t data;
  uint32_t bytes;
  uint32_t name_space;
  uint16_t log;
  uint16_t zero[3];
};
static_assert(sizeof(LogWire) == 32);

constexpr size_t kTextMax = 184;
struct RefusalWire {
  Header header;
  uint16_t kind;   // enum ErrorClass
  uint16_t bytes;  // of the text
  uint32_t zero;
  char text[kTextMax];
};
static_assert(sizeof(RefusalWire) == kMailMax);

struct ConfirmedWire {
  Header header;
};

struct WelcomeWire {
  Header header;
  uint32_t entries;
  uint32_t pairs;
  uint64_t near_address;
  uint64_t near_bytes;
  uint64_t near_offset;
  uint32_t near_segment;
  uint32_t near_bar;
  uint64_t changes;
};
static_assert(sizeof(WelcomeWire) == 56);

struct CreatedWire {
  Header header;
  uint32_t submission_doorbell;
  uint32_t completion_doorbell;
  uint16_t id;
  uint16_t zero[3];
};
static_assert(sizeof(CreatedWire) == 24);

struct FencedWire {
  Header header;
  uint32_t fenced;
  uint32_t zero;
};
static_assert(sizeof(FencedWire) == 16);

struct ChangesWire {
  Header header;
  uint64_t now;
  uint16_t all;  // 0 or 1
  uint16_t count;
  uint32_t zero;
  uint32_t ids[kChangedMax];  // 0 from the count on
};
static_assert(sizeof(ChangesWire) <= kMailMax);

struct PieceWire {
  Header header;
  std::byte bytes[kPieceBytes];
};
static_assert(sizeof(PieceWire) <= kMailMax);

template <class Wire>
std::vector<std::byte> bytes_of(const Wire& wire) {
  const auto* begin = reinterpret_cast<const std::byte*>(&wire);
  return {begin, begin + sizeof wire};
}

// Zeroed, but for its header.
template <class Wire>
Wire make(Topic topic, uint32_t number) {
  Wire wire;
  std::memset(static_cast<void*>(&wire), 0, sizeof wire);
  wire.header = {kVersion, topic, number};
  return wire;
}

std::vector<std::byte> put(uint32_t number, const Hello& hello) {
  auto wire = make<HelloWire>(kHello, number);
  wire.key = hello.key;
  return bytes_of(wire);
}

std::vector<std::byte> put(uint32_t number, const Clear& clear) {
  auto wire = make<ClearWire>(kClear, number);
  wire.lease = clear.client.lease;
  wire.key = clear.client.key;
  return bytes_of(wire);
}

std::vector<std::byte> put(uint32_t number, const Fence& fence) {
  auto wire = make<FenceWire>(kFence, number);
  wire.node = fence.node;
  wire.what = static_cast<uint16_t>(fence.what);
  return bytes_of(wire);
}

std::vector<std::byte> put(uint32_t number, const AskChanges& ask) {
  auto wire = make<AskChangesWire>(kAskChanges, number);
  wire.since = ask.since;
  return bytes_of(wire);
}

std::vector<std::byte> put(uint32_t number, const CreatePair& create) {
  auto wire = make<CreateWire>(kCreatePair, number);
  wire.submission = create.request.submission;
  wire.completion = create.request.completion;
  wire.entries = create.request.entries;
  wire.interrupts = create.request.vector.has_value();
  wire.vector = create.request.vector.value_or(0);
  return bytes_of(wire);
}

std::vector<std::byte> put(uint32_t number, const DeletePair& remove) {
  auto wire = make<DeleteWire>(kDeletePair, number);
  wire.id = remove.id;
  return bytes_of(wire);
}

std::vector<std::byte> put(uint32_t number, const AskIdentify& identify) {
  auto wire = make<IdentifyWire>(kIdentify, number);
  wire.page = identify.page;
  wire.name_space = identify.name_space;
  wire.what = identify.what;
  return bytes_of(wire);
}

std::vector<std::byte> put(uint32_t number, const AskController& controller) {
  auto wire = make<ControllerWire>(kController, number);
  wire.offset = controller.offset;
  return bytes_of(wire);
}

std::vector<std::byte> put(uint32_t number, const AskLog& log) {
  auto wire = make<LogWire>(kLog, number);
  wire.data = log.data;
  wire.bytes = log.bytes;
  wire.name_space = log.name_space;
  wire.log = log.log;
  return bytes_of(wire);
}

std::vector<std::byte> put(uint32_t number, const Refusal& refusal) {
  auto wire = make<RefusalWire>(kRefusal, number);
  wire.kind = static_cast<uint16_t>(refusal.error.kind);
  wire.bytes = static_cast<uint16_t>(std::min(refusal.error.message.size(), kTextMax));
  std::memcpy(wire.text, refusal.error.message.data(), wire.bytes);
  return bytes_of(wire);
}

std::vector<std::byte> put(uint32_t number, const Confirmed&) {
  return bytes_of(make<ConfirmedWire>(kConfirmed, number));
}

std::vector<std::byte> put(uint32_t number, const Welcome& welcome) {
  auto wire = make<WelcomeWire>(kWelcome, number);
  wire.entries = welcome.entries;
  wire.pairs = welcome.pairs;
  wire.near_segment = welcome.near_segment;
  wire.near_address = welcome.near_address;
  wire.near_bytes = welcome.near_bytes;
  wire.near_offset = welcome.near_offset;
  wire.near_bar = welcome.near_bar;
  wire.changes = welcome.changes;
  return bytes_of(wire);
}

std::vector<std::byte> put(uint32_t number, const Created& created) {
  auto wire = make<CreatedWire>(kCreated, number);
  wire.id = created.grant.id;
  wire.submission_doorbell = static_cast<uint32_t>(created.grant.submission_doorbell);
  wire.completion_doorbell = static_cast<uint32_t>(created.grant.completion_doorbell);
  return bytes_of(wire);
}

std::vector<std::byte> put(uint32_t number, const Fenced& fenced) {
  auto wire = make<FencedWire>(kFenced, number);
  wire.fenced = fenced.fenced;
  return bytes_of(wire);
}

std::vector<std::byte> put(uint32_t number, const Changes& changes) {
  auto wire = make<ChangesWire>(kChanges, number);
  const std::vector<uint32_t>& ids = changes.which.ids;
  wire.now = changes.now;
  wire.all = changes.which.all || ids.size() > kChangedMax;
  if (wire.all) return bytes_of(wire);
  wire.count = static_cast<uint16_t>(ids.size());
  std::ranges::copy(ids, wire.ids);
  return bytes_of(wire);
}

std::vector<std::byte> put(uint32_t number, const Piece& piece) {
  auto wire = make<PieceWire>(kPiece, number);
  std::ranges::copy(piece.bytes, wire.bytes);
  return bytes_of(wire);
}

// All of it, and not more; what must be 0 is.
template <class Wire>
bool read(std::span<const std::byte> bytes, Wire& wire) {
  if (bytes.size() != sizeof wire) return false;
  std::memcpy(static_cast<void*>(&wire), bytes.data(), sizeof wire);
  if constexpr (requires { wire.zero; }) {
    static constexpr std::byte kNone[sizeof wire.zero]{};
    return std::memcmp(&wire.zero, kNone, sizeof kNone) == 0;
  }
  return true;
}

tl::unexpected<Error> nonsense() {
  return fail(ErrorClass::Failure, "mail that makes no sense: use the same release of pcilend");
}

Result<Header> header_of(std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof header) return nonsense();
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.version != kVersion)
    return fail(ErrorClass::Unsupported,
                "mail of version {}, and {} is known here: use the same release of pcilend on both "
                "hosts",
                header.version, kVersion);
  return header;
}

Result<CreatePair> read_create(std::span<const std::byte> bytes) {
  CreateWire wire;
  if (!read(bytes, wire) || wire.interrupts > 1) return nonsense();
  CreatePair create{{wire.entries, wire.submission, wire.completion, {}}};
  if (wire.interrupts) create.request.vector = wire.vector;
  return create;
}

Result<Fence> read_fence(std::span<const std::byte> bytes) {
  FenceWire wire;
  if (!read(bytes, wire) || wire.what > static_cast<uint16_t>(Fencing::On)) return nonsense();
  return Fence{static_cast<Fencing>(wire.what), wire.node};
}

Result<Fenced> read_fenced(std::span<const std::byte> bytes) {
  FencedWire wire;
  if (!read(bytes, wire) || wire.fenced > 1) return nonsense();
  return Fenced{wire.fenced != 0};
}

Result<Changes> read_changes(std::span<const std::byte> bytes) {
  ChangesWire wire;
  if (!read(bytes, wire) || wire.all > 1 || wire.count > (wire.all ? 0 : kChangedMax))
    return nonsense();
  const std::span<const uint32_t, kChangedMax> ids(wire.ids);
  const auto none = [](uint32_t id) { return id == 0; };
  if (std::ranges::any_of(ids.first(wire.count), none) ||
      !std::ranges::all_of(ids.subspan(wire.count), none))
    return nonsense();
  return Changes{wire.now, {wire.all != 0, {ids.begin(), ids.begin() + wire.count}}};
}

// Text that a terminal may get.
Result<Refusal> read_refusal(std::span<const std::byte> bytes) {
  RefusalWire wire;
  if (!read(bytes, wire) || wire.bytes > kTextMax || wire.kind == 0 ||
      wire.kind > static_cast<uint16_t>(ErrorClass::Unsupported))
    return nonsense();
  std::string text(wire.text, wire.bytes);
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return Refusal{{static_cast<ErrorClass>(wire.kind), std::move(text)}};
}

// One of the alternatives, if it can be read.
template <class Any, class One>
Result<Letter<Any>> letter(uint32_t number, Result<One> one) {
  if (!one) return tl::unexpected(std::move(one).error());
  return Letter<Any>{number, Any(std::move(*one))};
}

template <class Wire, class Make>
auto read_as(std::span<const std::byte> bytes, Make&& make) -> Result<decltype(make(Wire()))> {
  Wire wire;
  if (!read(bytes, wire)) return nonsense();
  return make(wire);
}

}  // namespace

std::vector<std::byte> encode(uint32_t number, const Question& question) {
  return std::visit([&](const auto& what) { return put(number, what); }, question);
}

std::vector<std::byte> encode(uint32_t number, const Answer& answer) {
  return std::visit([&](const auto& what) { return put(number, what); }, answer);
}

Result<Letter<Question>> decode_question(std::span<const std::byte> bytes) {
  const auto header = header_of(bytes);
  if (!header) return tl::unexpected(header.error());
  const uint32_t number = header->number;
  switch (header->topic) {
    case kHello:
      return letter<Question>(
          number, read_as<HelloWire>(bytes, [](const auto& wire) { return Hello{wire.key}; }));
    case kClear:
      return letter<Question>(number, read_as<ClearWire>(bytes, [](const auto& wire) {
                                return Clear{{wire.lease, wire.key}};
                              }));
    case kFence:
      return letter<Question>(number, read_fence(bytes));
    case kAskChanges:
      return letter<Question>(number, read_as<AskChangesWire>(bytes, [](const auto& wire) {
                                return AskChanges{wire.since};
                              }));
    case kCreatePair:
      return letter<Question>(number, read_create(bytes));
    case kDeletePair:
      return letter<Question>(
          number, read_as<DeleteWire>(bytes, [](const auto& wire) { return DeletePair{wire.id}; }));
    case kIdentify:
      return letter<Question>(number, read_as<IdentifyWire>(bytes, [](const auto& wire) {
                                return AskIdentify{wire.what, wire.name_space, wire.page};
                              }));
    case kController:
      return letter<Question>(number, read_as<ControllerWire>(bytes, [](const auto& wire) {
                                return AskController{wire.offset};
                              }));
    case kLog:
      return letter<Question>(number, read_as<LogWire>(bytes, [](const auto& wire) {
                                return AskLog{wire.log, wire.name_space, wire.bytes, wire.data};
                              }));
    default:
      return nonsense();
  }
}

Result<Letter<Answer>> decode_answer(std::span<const std::byte> bytes) {
  const auto header = header_of(bytes);
  if (!header) return tl::unexpected(header.error());
  const uint32_t number = header->number;
  switch (header->topic) {
    case kRefusal:
      return letter<Answer>(number, read_refusal(bytes));
    case kConfirmed:
      return letter<Answer>(number,
                            read_as<ConfirmedWire>(bytes, [](const auto&) { return Confirmed{}; }));
    case kWelcome:
      return letter<Answer>(number, read_as<WelcomeWire>(bytes, [](const auto& wire) {
                              return Welcome{wire.entries,      wire.pairs,      wire.near_segment,
                                             wire.near_address, wire.near_bytes, wire.near_bar,
                                             wire.near_offset,  wire.changes};
                            }));
    case kCreated:
      return letter<Answer>(
          number, read_as<CreatedWire>(bytes, [](const auto& wire) {
            return Created{{wire.id, wire.submission_doorbell, wire.completion_doorbell}};
          }));
    case kFenced:
      return letter<Answer>(number, read_fenced(bytes));
    case kChanges:
      return letter<Answer>(number, read_changes(bytes));
    case kPiece:
      return letter<Answer>(number, read_as<PieceWire>(bytes, [](const auto& wire) {
                              Piece piece;
                              std::ranges::copy(wire.bytes, piece.bytes.begin());
                              return piece;
                            }));
    default:
      return nonsense();
  }
}

uint32_t number_of(std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof header) return 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header.number;
}

}  // namespace pcilend::nvme::mail
