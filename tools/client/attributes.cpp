// SPDX-License-Identifier: GPL-2.0-or-later
#include "attributes.h"

#include <libmnl/libmnl.h>

#include <algorithm>

namespace pcilend {
namespace {

Result<> wrong_length(const Attribute& attribute) {
  return fail(ErrorClass::Failure, "malformed answer: attribute {} has {} bytes", attribute.type,
              attribute.payload.size());
}

template <class T>
Result<> read_number(const Attribute& attribute, T* value) {
  if (attribute.payload.size() != sizeof *value) return wrong_length(attribute);
  std::memcpy(value, attribute.payload.data(), sizeof *value);
  return {};
}

}  // namespace

Result<> Attribute::read(uint16_t* value) const {
  return read_number(*this, value);
}
Result<> Attribute::read(uint32_t* value) const {
  return read_number(*this, value);
}
Result<> Attribute::read(uint64_t* value) const {
  return read_number(*this, value);
}

Result<> Attribute::read(std::string* text) const {
  if (payload.empty() || payload.back() != std::byte{0}) return wrong_length(*this);
  text->assign(reinterpret_cast<const char*>(payload.data()));
  std::replace_if(
      text->begin(), text->end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  return {};
}

Result<> Attribute::read(std::span<uint8_t> bytes) const {
  if (payload.size() != bytes.size()) return wrong_length(*this);
  if (!payload.empty()) std::memcpy(bytes.data(), payload.data(), payload.size());
  return {};
}

Result<> Attribute::read(std::vector<uint32_t>* values) const {
  if (payload.size() % sizeof(uint32_t) != 0) return wrong_length(*this);
  values->resize(payload.size() / sizeof(uint32_t));
  if (!payload.empty()) std::memcpy(values->data(), payload.data(), payload.size());
  return {};
}

Result<> for_each_attribute(std::span<const std::byte> bytes,
                            const std::function<Result<>(const Attribute&)>& visit) {
  while (!bytes.empty()) {
    const auto* raw = reinterpret_cast<const nlattr*>(bytes.data());
    if (!mnl_attr_ok(raw, static_cast<int>(bytes.size())))
      return fail(ErrorClass::Failure, "malformed answer: an attribute exceeds its message");
    const Attribute attribute{
        mnl_attr_get_type(raw),
        bytes.subspan(MNL_ATTR_HDRLEN, mnl_attr_get_payload_len(raw)),
    };
    PCILEND_TRY(visit(attribute));
    bytes = bytes.subspan(std::min<size_t>(bytes.size(), MNL_ALIGN(mnl_attr_get_len(raw))));
  }
  return {};
}

}  // namespace pcilend
