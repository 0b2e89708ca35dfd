// SPDX-License-Identifier: GPL-2.0-or-later
// What programs of users begin with (libpcilend(3)).
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "pcilend/api.h"
#include "pcilend/error.h"
#include "pcilend/segment_info.h"

namespace pcilend {

class Client;

// pcilend.ko of this host, by a socket of its own. What is made of it does not need it any more.
class PCILEND_API ThisHost {
 public:
  // Unreachable if pcilend.ko is not loaded.
  static Result<ThisHost> open();
  // For the programs of pcilend: over a client of theirs, which lives as long as what is made of
  // it.
  explicit ThisHost(Client& client) : client_(std::shared_ptr<Client>(), &client) {}

  // Its number in the fabric, 1 to 65535; 0: none was given to pcilend.ko.
  [[nodiscard]] Result<uint32_t> node() const;
  // Its own segments, by id, then those of peers that are connected here.
  [[nodiscard]] Result<std::vector<Segment>> segments() const;
  // What peers offer to this host. They are asked, which takes up to 5 s for each that is silent.
  [[nodiscard]] Result<std::vector<Segment>> offered() const;

 private:
  friend class OwnedSegment;
  friend class Connection;
  friend class Lease;

  explicit ThisHost(std::shared_ptr<Client> client) : client_(std::move(client)) {}

  std::shared_ptr<Client> client_;
};

}  // namespace pcilend
