/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of `tandem check`: what is right, suspicious or wrong about hosts whose facts
 * are known. Each rule adds lines to the cluster's report; the networks have rules of
 * their own (nets.h).
 */
#ifndef TD_FABRIC_JUDGE_H
#define TD_FABRIC_JUDGE_H

#include "fabric/cluster.h"

/* Judges every host that has facts, and what differs between them. */
void td_judge(struct td_cluster *c);

#endif
