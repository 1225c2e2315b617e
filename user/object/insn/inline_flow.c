/* SPDX-License-Identifier: Apache-2.0 */
#include "object/insn/inline_flow.h"

void inline_flow_init(struct inline_flow *flow)
{
	inline_state_init(&flow->state);
	flow->branch_count = 0;
	flow->is_cut = 0;
}

void inline_flow_reach(struct inline_flow *flow, const struct inline_insn *insn)
{
	uint64_t known = flow->branch_count < INLINE_FLOW_BRANCHES ? flow->branch_count
								   : INLINE_FLOW_BRANCHES;
	uint64_t next = flow->state.next;

	for (uint64_t i = 1; flow->is_cut && i <= known; i++) {
		uint64_t at = (flow->branch_count - i) % INLINE_FLOW_BRANCHES;

		if (flow->branches[at].target != insn->vaddr)
			continue;
		flow->state = flow->branches[at].state;
		flow->state.next = next; /* values seen since then remain other ones */
		flow->is_cut = 0;
	}
}

void inline_flow_step(struct inline_flow *flow, const struct inline_insn *insn)
{
	uint64_t at = flow->branch_count % INLINE_FLOW_BRANCHES;

	inline_state_step(&flow->state, insn);
	if ((insn->op == INLINE_BRANCH || insn->op == INLINE_JUMP) && insn->target > insn->vaddr) {
		flow->branches[at].target = insn->target;
		flow->branches[at].state = flow->state;
		flow->branch_count++;
	}
	if (insn->op == INLINE_JUMP || insn->op == INLINE_JUMP_SLOT || insn->op == INLINE_END)
		flow->is_cut = 1;
}
