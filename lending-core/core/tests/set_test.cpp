// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/set.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace {

constexpr pcilend_set_holder kNobody = {};
constexpr pcilend_set_holder kGuest = {8, 1, 77, {0xd0, 1}};

pcilend_set_holder Changed(void (*change)(pcilend_set_holder&)) {
  pcilend_set_holder holder = kGuest;
  change(holder);
  return holder;
}

class Set : public testing::Test {
 protected:
  int Admits(u32 self, const pcilend_set_holder& wish = kGuest) {
    other_ = ~0u;
    return pcilend_set_admits(member_.data(), member_.size(), self, &wish, &other_);
  }

  std::vector<pcilend_set_member> member_ = {{PCILEND_FUNCTION_AVAILABLE, kNobody},
                                             {PCILEND_FUNCTION_AVAILABLE, kNobody},
                                             {PCILEND_FUNCTION_AVAILABLE, kNobody}};
  u32 other_ = 0;
};

TEST_F(Set, OneFunctionIsNobodysBusiness) {
  for (int state = PCILEND_FUNCTION_LOCAL; state <= PCILEND_FUNCTION_QUARANTINED; ++state) {
    member_ = {{static_cast<pcilend_function_state>(state), kGuest}};
    EXPECT_EQ(Admits(0, kNobody), 0);
    EXPECT_FALSE(pcilend_set_lent(member_.data(), 1, 0));
  }
}

TEST_F(Set, AllOthersMustBeAvailable) {
  EXPECT_EQ(Admits(0), 0);
  for (const auto state : {PCILEND_FUNCTION_LOCAL, PCILEND_FUNCTION_ADDED,
                           PCILEND_FUNCTION_RESETTING, PCILEND_FUNCTION_FENCING}) {
    member_[1].state = state;
    EXPECT_EQ(Admits(0), -EXDEV);
    EXPECT_EQ(other_, 1u);
    EXPECT_EQ(Admits(2), -EXDEV);
    EXPECT_EQ(Admits(1), 0) << "its own state is the lease's business";
  }
}

TEST_F(Set, HolderKeepsItUntilTheLastReset) {
  for (const auto state :
       {PCILEND_FUNCTION_BORROWED, PCILEND_FUNCTION_FENCING, PCILEND_FUNCTION_RESETTING}) {
    member_[2] = {state, kGuest};
    EXPECT_EQ(Admits(0), 0);
    EXPECT_TRUE(pcilend_set_lent(member_.data(), 3, 0));
    EXPECT_FALSE(pcilend_set_lent(member_.data(), 3, 2));
    for (const pcilend_set_holder& stranger :
         {Changed([](auto& h) { h.node = 12; }), Changed([](auto& h) { h.boot++; }),
          Changed([](auto& h) { h.owner[1] = 2; }), Changed([](auto& h) {
            h.link++;
            h.node = 12;
          })}) {
      EXPECT_EQ(Admits(0, stranger), -EUSERS);
      EXPECT_EQ(other_, 2u);
    }
    EXPECT_EQ(Admits(0, Changed([](auto& h) { h.owner[0] = h.owner[1] = 0; })), 0)
        << "a domain that is not told is not a different one";
  }
  member_[2] = {PCILEND_FUNCTION_AVAILABLE, kNobody};
  EXPECT_EQ(Admits(0, Changed([](auto& h) { h.node = 12; })), 0);
  EXPECT_FALSE(pcilend_set_lent(member_.data(), 3, 0));
}

TEST_F(Set, OneLinkForAll) {
  member_[2] = {PCILEND_FUNCTION_FENCING, kGuest};
  const auto over_another = Changed([](auto& h) {
    h.link++;
    h.boot += 5;
  });
  EXPECT_EQ(Admits(0, over_another), -EMLINK);
  EXPECT_EQ(other_, 2u);
  EXPECT_EQ(Admits(0), 0);
  member_[2] = {PCILEND_FUNCTION_AVAILABLE, kNobody};
  EXPECT_EQ(Admits(0, over_another), 0);
}

TEST_F(Set, NothingNewIsLentBesideAQuarantinedFunction) {
  member_[0] = {PCILEND_FUNCTION_QUARANTINED, kNobody};
  member_[1] = {PCILEND_FUNCTION_BORROWED, kGuest};
  EXPECT_EQ(Admits(2), -EUCLEAN);
  EXPECT_EQ(other_, 0u);
}

}  // namespace
