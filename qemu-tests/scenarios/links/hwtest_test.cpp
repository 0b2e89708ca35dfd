// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

/*
 *   host1                                  host2
 *   pcilend hwtest 8: answers <══ link ══> pcilend hwtest 4 SEGMENT: measures, reports
 *                                 which is cut at the end
 */
TEST_F(TwoHosts, HwtestReports) {
  do_hwtest();
}

}  // namespace
}  // namespace pcilend::scenarios
