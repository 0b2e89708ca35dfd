// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/this_host.h"

#include "pcilend/client.h"

namespace pcilend {

Result<ThisHost> ThisHost::open() {
  auto client = open_client();
  if (!client) return tl::unexpected(std::move(client).error());
  return ThisHost(std::shared_ptr<Client>(std::move(*client)));
}

Result<uint32_t> ThisHost::node() const {
  const auto node = client_->node();
  if (!node) return tl::unexpected(node.error());
  return node->id;
}

Result<std::vector<Segment>> ThisHost::segments() const {
  return client_->segments();
}

Result<std::vector<Segment>> ThisHost::offered() const {
  return client_->offered_segments();
}

}  // namespace pcilend
