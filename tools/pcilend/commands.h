// SPDX-License-Identifier: GPL-2.0-or-later
// The commands of pcilend(8). Each returns data or an error and prints nothing.
#pragma once

#include "answer.h"
#include "session.h"

namespace pcilend {

// Lender.
Result<Answer> command_connect(Session& session, const Options& options);
Result<Answer> command_disconnect(Session& session, const Options& options);
Result<Answer> command_add(Session& session, const Options& options);
Result<Answer> command_remove(Session& session, const Options& options);
Result<Answer> command_available(Session& session, const Options& options);
Result<Answer> command_unavailable(Session& session, const Options& options);
Result<Answer> command_allow(Session& session, const Options& options);
Result<Answer> command_label(Session& session, const Options& options);
Result<Answer> command_release_quarantine(Session& session, const Options& options);
Result<Answer> command_sanitize(Session& session, const Options& options);

Result<Answer> command_add_filter(Session& session, const Options& options);
Result<Answer> command_available_filter(Session& session, const Options& options);
Result<Answer> command_unavailable_filter(Session& session, const Options& options);
Result<Answer> command_save(Session& session, const Options& options);
Result<Answer> command_restore(Session& session, const Options& options);

// Borrower.
Result<Answer> command_borrow(Session& session, const Options& options);
Result<Answer> command_return(Session& session, const Options& options);
Result<Answer> command_p2p(Session& session, const Options& options);
Result<Answer> command_vm_xml(Session& session, const Options& options);

Result<Answer> command_kinds(Host& host, const Options& options);
Result<Answer> command_add_kind(Host& host, const Options& options);
Result<Answer> command_remove_kind(Host& host, const Options& options);

// Both.
Result<Answer> command_list(Session& session, const Options& options);
Result<Answer> command_show(Session& session, const Options& options);
Result<Answer> command_link(Session& session, const Options& options);
Result<Answer> command_node(Session& session, const Options& options);
Result<Answer> command_reserve(Session& session, const Options& options);
Result<Answer> command_lspci(Session& session, const Options& options);
Result<Answer> command_status(Session& session, const Options& options);
Result<Answer> command_metrics(Session& session, const Options& options);
Result<Answer> command_monitor(Session& session, const Options& options);
Result<Answer> command_segment(Session& session, const Options& options);
Result<Answer> command_hwtest(Session& session, const Options& options);
Result<Answer> command_check(Host& host, const Options& options);
Result<Answer> command_nvme(Host& host, const Options& options);

}  // namespace pcilend
