// SPDX-License-Identifier: GPL-2.0-or-later
#include "genetlink.h"

#include <libmnl/libmnl.h>
#include <linux/genetlink.h>

#include "attributes.h"

namespace pcilend {
namespace {

// A dump that changed under the kernel's hands is asked for again, this often in all. Entries come
// by their ids, so that also one that never settles has each that stays; a peer must not be able to
// keep this host from listing.
constexpr int kDumpAttempts = 3;

Refusal refusal(int number, ErrorClass kind, std::string text) {
  return Refusal{number, Error{kind, std::move(text)}};
}

Refusal malformed(std::string_view what) {
  return refusal(0, ErrorClass::Failure, fmt::format("netlink: malformed answer: {}", what));
}

// Which class of error a kernel's errno is; the text says the rest.
ErrorClass classify(int number) {
  switch (number) {
    case ENODEV:
    case ENOENT:
    case ESRCH:
    case ENXIO:
      return ErrorClass::NotFound;
    case EBUSY:
    case EAGAIN:
    case ESTALE:
    case EUCLEAN:
    case EALREADY:
    case EEXIST:
    case ENOSPC:
    case ENOTCONN:
      return ErrorClass::State;
    case EPERM:
    case EACCES:
    case ECONNREFUSED:
      return ErrorClass::Permission;
    case ETIMEDOUT:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENOLINK:
      return ErrorClass::Unreachable;
    case EOPNOTSUPP:
    case ENOSYS:
      return ErrorClass::Unsupported;
    case EINVAL:
    case ERANGE:
      return ErrorClass::Usage;
    default:
      return ErrorClass::Failure;
  }
}

// The kernel's sentence behind an acknowledgement, if it sent one.
std::string extended_text(std::span<const std::byte> attributes) {
  std::string text;
  const auto read = for_each_attribute(attributes, [&](const Attribute& a) -> Result<> {
    return a.type == NLMSGERR_ATTR_MSG ? a.read(&text) : Result<>{};
  });
  return read ? text : std::string();
}

// Refusals of pcilend.ko have a sentence: these are generic netlink's.
std::string text_without_sentence(int number) {
  if (classify(number) == ErrorClass::Permission) return "this needs root (CAP_SYS_ADMIN)";
  if (number == ENOMEM) return "the kernel is out of memory: free some, and try again";
  if (number == EOPNOTSUPP)
    return "the loaded pcilend.ko does not know this: it is older than this program, and the "
           "installed one is loaded by a reboot";
  return std::strerror(number);
}

Refusal kernel_refusal(int number, std::span<const std::byte> extended) {
  std::string text = extended_text(extended);
  if (text.empty()) text = text_without_sentence(number);
  return refusal(number, classify(number), std::move(text));
}

std::span<const std::byte> payload_of(const nlmsghdr* message) {
  return {static_cast<const std::byte*>(mnl_nlmsg_get_payload(message)),
          mnl_nlmsg_get_payload_len(message)};
}

std::span<const std::byte> after(std::span<const std::byte> bytes, size_t offset) {
  return bytes.subspan(std::min(offset, bytes.size()));
}

// The message at the start of `bytes`, or null. (libmnl's mnl_nlmsg_ok() takes a length above
// INT_MAX for a negative one: 1.0.4.)
const nlmsghdr* first_message(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(nlmsghdr)) return nullptr;
  const auto* const message = reinterpret_cast<const nlmsghdr*>(bytes.data());
  if (message->nlmsg_len < sizeof(nlmsghdr) || message->nlmsg_len > bytes.size()) return nullptr;
  return message;
}

// Errno (positive) of an NLMSG_ERROR or NLMSG_DONE message; 0 for success.
tl::expected<void, Refusal> acknowledged(const nlmsghdr* message) {
  const auto payload = payload_of(message);
  int32_t code = 0;
  if (payload.size() < sizeof code) {
    if (message->nlmsg_type == NLMSG_DONE) return {};
    return tl::unexpected(malformed("short acknowledgement"));
  }
  std::memcpy(&code, payload.data(), sizeof code);
  if (code == 0) return {};
  if (code > 0 || code < -4095) return tl::unexpected(malformed("not an errno"));

  size_t extended = payload.size();
  if (message->nlmsg_flags & NLM_F_ACK_TLVS) {
    if (message->nlmsg_type == NLMSG_DONE) {
      extended = MNL_ALIGN(sizeof code);
    } else if (message->nlmsg_flags & NLM_F_CAPPED) {
      extended = sizeof(nlmsgerr);
    } else if (payload.size() >= sizeof(nlmsgerr)) {
      nlmsgerr quoted{};
      std::memcpy(&quoted, payload.data(), sizeof quoted);
      extended = sizeof(int32_t) + MNL_ALIGN(static_cast<size_t>(quoted.msg.nlmsg_len));
    }
  }
  return tl::unexpected(kernel_refusal(-code, after(payload, extended)));
}

// CTRL_ATTR_MCAST_GROUPS: a nest for each group.
Result<> read_groups(const Attribute& groups, std::map<std::string, uint32_t, std::less<>>* found) {
  return for_each_attribute(groups.payload, [&](const Attribute& group) -> Result<> {
    std::string name;
    uint32_t id = 0;
    PCILEND_TRY(for_each_attribute(group.payload, [&](const Attribute& a) -> Result<> {
      if (a.type == CTRL_ATTR_MCAST_GRP_NAME) return a.read(&name);
      return a.type == CTRL_ATTR_MCAST_GRP_ID ? a.read(&id) : Result<>{};
    }));
    (*found)[name] = id;
    return {};
  });
}

}  // namespace

Request::Request(uint8_t command, Kind kind) : kind_(kind) {
  nlmsghdr* const message = mnl_nlmsg_put_header(buffer_.data());
  message->nlmsg_flags =
      static_cast<uint16_t>(NLM_F_REQUEST | (kind == Kind::Dump ? NLM_F_DUMP : NLM_F_ACK));
  auto* const generic =
      static_cast<genlmsghdr*>(mnl_nlmsg_put_extra_header(message, sizeof(genlmsghdr)));
  generic->cmd = command;
}

Request& Request::put(uint16_t type, uint32_t value) {
  if (!mnl_attr_put_u32_check(header(), buffer_.size(), type, value)) overflow_ = true;
  return *this;
}

Request& Request::put64(uint16_t type, uint64_t value) {
  if (!mnl_attr_put_u64_check(header(), buffer_.size(), type, value)) overflow_ = true;
  return *this;
}

Request& Request::put(uint16_t type, std::span<const uint32_t> values) {
  if (!mnl_attr_put_check(header(), buffer_.size(), type, values.size_bytes(), values.data()))
    overflow_ = true;
  return *this;
}

Request& Request::put(uint16_t type, std::string_view text) {
  if (!mnl_attr_put_strz_check(header(), buffer_.size(), type, std::string(text).c_str()))
    overflow_ = true;
  return *this;
}

Request& Request::put(uint16_t type, std::span<const std::byte> bytes) {
  if (!mnl_attr_put_check(header(), buffer_.size(), type, bytes.size(), bytes.data()))
    overflow_ = true;
  return *this;
}

Request& Request::nest(uint16_t type, std::initializer_list<std::pair<uint16_t, uint32_t>> values) {
  nlattr* const nest = mnl_attr_nest_start_check(header(), buffer_.size(), type);
  if (!nest) {
    overflow_ = true;
    return *this;
  }
  for (const auto& [inner, value] : values) put(inner, value);
  mnl_attr_nest_end(header(), nest);
  return *this;
}

Result<Family> find_family(Transport& transport, std::string_view name) {
  GenericNetlink control(transport, GENL_ID_CTRL, 1);
  Request request(CTRL_CMD_GETFAMILY);
  request.put(CTRL_ATTR_FAMILY_NAME, name);
  auto replies = control.exchange(request);
  if (!replies) return tl::unexpected(std::move(replies).error().error);

  Family family;
  for (const auto& reply : *replies)
    PCILEND_TRY(for_each_attribute(reply, [&](const Attribute& a) -> Result<> {
      if (a.type == CTRL_ATTR_FAMILY_ID) return a.read(&family.id);
      if (a.type == CTRL_ATTR_VERSION) return a.read(&family.version);
      return a.type == CTRL_ATTR_MCAST_GROUPS ? read_groups(a, &family.groups) : Result<>{};
    }));
  if (family.id < NLMSG_MIN_TYPE)
    return fail(ErrorClass::Failure, "netlink: malformed answer: no family id");
  return family;
}

Result<Replies> split_notifications(std::span<const std::byte> datagram, uint16_t family,
                                    uint8_t command) {
  Replies messages;
  while (!datagram.empty()) {
    const nlmsghdr* const at = first_message(datagram);
    if (!at) return tl::unexpected(malformed("truncated message").error);
    datagram = after(datagram, MNL_ALIGN(static_cast<size_t>(at->nlmsg_len)));
    const auto payload = payload_of(at);
    if (at->nlmsg_type != family) continue;
    if (payload.size() < GENL_HDRLEN) return tl::unexpected(malformed("short message").error);
    if (reinterpret_cast<const genlmsghdr*>(payload.data())->cmd != command) continue;
    const auto attributes = payload.subspan(GENL_HDRLEN);
    messages.emplace_back(attributes.begin(), attributes.end());
  }
  return messages;
}

Result<GenericNetlink> GenericNetlink::open(std::unique_ptr<Transport> transport,
                                            std::string_view family, uint8_t version) {
  const auto found = find_family(*transport, family);
  if (!found) return tl::unexpected(found.error());
  if (found->version != version)
    return fail(ErrorClass::Unreachable,
                "{0}.ko and this program do not understand each other (netlink versions {1} and "
                "{2}): install both from one release, and load that {0}.ko by a reboot",
                family, found->version, version);
  GenericNetlink netlink(*transport, found->id, version);
  netlink.owned_ = std::move(transport);
  netlink.sequence_ = 1;  // the look-up's
  return netlink;
}

tl::expected<Replies, Refusal> GenericNetlink::exchange(Request& request) {
  for (int attempt = 1;; ++attempt) {
    bool interrupted = false;
    auto replies = exchange_once(request, &interrupted);
    if (!replies || !interrupted || attempt == kDumpAttempts) return replies;
  }
}

tl::expected<Replies, Refusal> GenericNetlink::exchange_once(Request& request, bool* interrupted) {
  if (request.overflow_)
    return tl::unexpected(refusal(0, ErrorClass::Usage, "an argument is too long"));
  nlmsghdr* const message = request.header();
  message->nlmsg_type = family_;
  message->nlmsg_seq = ++sequence_;
  static_cast<genlmsghdr*>(mnl_nlmsg_get_payload(message))->version = version_;
  const auto sent = transport_->send(std::span(request.buffer_).first(message->nlmsg_len));
  if (!sent) return tl::unexpected(Refusal{0, sent.error()});

  Replies replies;
  for (;;) {
    const auto datagram = transport_->receive();
    if (!datagram) return tl::unexpected(Refusal{0, datagram.error()});
    std::span<const std::byte> rest(*datagram);
    while (!rest.empty()) {
      const nlmsghdr* const at = first_message(rest);
      if (!at) return tl::unexpected(malformed("truncated message"));
      rest = after(rest, MNL_ALIGN(static_cast<size_t>(at->nlmsg_len)));
      if (at->nlmsg_seq != sequence_) continue;  // the end of an exchange given up earlier
      const auto progress = take(at, &replies);
      if (!progress) return tl::unexpected(progress.error());
      if (at->nlmsg_flags & NLM_F_DUMP_INTR) *interrupted = true;
      if (*progress == Progress::Done) return replies;
    }
  }
}

tl::expected<GenericNetlink::Progress, Refusal> GenericNetlink::take(const nlmsghdr* message,
                                                                     Replies* replies) const {
  if (message->nlmsg_type == NLMSG_NOOP) return Progress::More;
  if (message->nlmsg_type == NLMSG_ERROR || message->nlmsg_type == NLMSG_DONE) {
    if (auto end = acknowledged(message); !end) return tl::unexpected(std::move(end).error());
    return Progress::Done;
  }
  if (message->nlmsg_type != family_) return tl::unexpected(malformed("another family's message"));
  const auto payload = payload_of(message);
  if (payload.size() < GENL_HDRLEN) return tl::unexpected(malformed("short message"));
  const auto attributes = payload.subspan(GENL_HDRLEN);
  replies->emplace_back(attributes.begin(), attributes.end());
  return Progress::More;
}

}  // namespace pcilend
