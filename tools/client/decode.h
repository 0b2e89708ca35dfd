// SPDX-License-Identifier: GPL-2.0-or-later
// From attributes of the pcilend family to the data model.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "pcilend/client.h"
#include "pcilend/model.h"

namespace pcilend {

// `attributes` are the top-level attributes of one reply, 4-byte aligned. Attributes unknown to
// this program are skipped; one that is malformed, or required and missing, is an error.
Result<Node> decode_node(std::span<const std::byte> attributes);
Result<Link> decode_link(std::span<const std::byte> attributes);
Result<Function> decode_function(std::span<const std::byte> attributes);
Result<Counters> decode_counters(std::span<const std::byte> attributes);
Result<Segment> decode_segment(std::span<const std::byte> attributes);
// These own the descriptors that the answer names.
Result<CreatedSegment> decode_created_segment(std::span<const std::byte> attributes);
Result<ConnectedSegment> decode_connected_segment(std::span<const std::byte> attributes);
Result<LeasedFunction> decode_leased(std::span<const std::byte> attributes);
Result<JoinedFunction> decode_joined(std::span<const std::byte> attributes);
Result<UniqueFd> decode_fd(std::span<const std::byte> attributes);
// Nothing: there is no news.
Result<std::optional<ClientNotice>> decode_client_notice(std::span<const std::byte> attributes);
// Nothing: there is none.
Result<std::optional<Mail>> decode_mail(std::span<const std::byte> attributes);
Result<uint64_t> decode_address(std::span<const std::byte> attributes);
Result<Event> decode_event(std::span<const std::byte> attributes);
// 256 or 4096 bytes.
Result<std::vector<uint8_t>> decode_config(std::span<const std::byte> attributes);

}  // namespace pcilend
