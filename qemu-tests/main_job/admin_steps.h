// SPDX-License-Identifier: GPL-2.0-or-later
// Steps that an admin takes with a function of any kind, and what hosts tell of it. The main job
// takes them with a drive.
#pragma once

#include <string>

#include "lab/host.h"
#include "pcilend/result.h"

namespace pcilend::scenarios {

// add, available with these options: what the lender lists of it then.
Result<nlohmann::json> offer(const lab::Host& lender, const std::string& address,
                             const std::string& options = {});

// What `host` lists of a function, by its id or by its address on its lender; NotFound if nothing.
Result<nlohmann::json> function_on(const lab::Host& host, const std::string& id);
Result<nlohmann::json> function_at(const lab::Host& host, const lab::Host& lender,
                                   const std::string& address);

// Waits until `host` lists the function in that state.
Result<> await_state(const lab::Host& host, const std::string& id, const std::string& state,
                     std::chrono::milliseconds within = lab::kPatience);

// The clients of a function that is shared, as its lender lists them, once there are so many.
Result<nlohmann::json> await_clients(const lab::Host& lender, const std::string& id, size_t count);

// The disk that the host's driver has made of the function at that address, once it has: /dev/sda.
Result<std::string> await_disk(const lab::Host& host, const std::string& address);

// Waits until `host` reaches all others that it has links to; until it reaches none.
Result<> await_links_up(const lab::Host& host);
Result<> await_links_down(const lab::Host& host);

}  // namespace pcilend::scenarios
