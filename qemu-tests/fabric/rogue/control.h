// SPDX-License-Identifier: GPL-2.0-or-later
// The rogue node of a fabric: one link to each host, and what it is told to do, as JSON.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pcilend/result.h"
#include "rogue/node.h"

namespace pcilend::rogue {

class Rogue {
 public:
  // A link to a host, by an adapter's socket.
  Result<> connect(const std::string& host, const std::string& socket, uint16_t number);
  // The same on a connected stream.
  Result<> adopt(const std::string& host, UniqueFd socket, uint16_t number);

  // Lets every link go on.
  void step();
  [[nodiscard]] bool alive() const;
  [[nodiscard]] std::vector<int> fds() const;

  // Carries out one request line; returns when it is done (README.md).
  nlohmann::json carry_out(std::string_view line);

  // Runs besides step() while an attack goes on.
  std::function<void()> pump = [this] { step(); };

 private:
  struct Link {
    std::string host;
    std::unique_ptr<Port> port;
    std::unique_ptr<Node> node;
  };

  Result<> add(const std::string& host, Result<std::unique_ptr<Port>> port, uint16_t number);
  Result<nlohmann::json> attack(const nlohmann::json& request);
  [[nodiscard]] nlohmann::json status() const;

  std::vector<Link> links_;
};

}  // namespace pcilend::rogue
