// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

/*
 *   host1 (lender) <── reads all of it ── host2 (borrower)
 *   host1 (lender) ── reads all of it ──> host2 (borrower)
 *
 * At each stage of a lease each host reaches the other's control area, its interrupts, and what is
 * lent or leased: the borrower the BARs, the lender's drive the guest's memory. Not a page more.
 */
TEST_F(TwoHosts, APeerReachesWhatIsLentAndNoPageMore) {
  do_sweeps();
}

}  // namespace
}  // namespace pcilend::scenarios
