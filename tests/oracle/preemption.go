package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// preemptionPlan is what evictions could do for a pod that fits nowhere.
type preemptionPlan struct {
	// Eligible is false if the pod must not preempt, or must wait for victims
	// of an earlier preemption.
	Eligible bool `json:"eligible"`
	// Node is the candidate that upstream would take; empty without any.
	Node       string              `json:"node"`
	Candidates map[string]*victims `json:"candidates"`
	// Message is that of the PostFilter plugin.
	Message string `json:"message"`
}

// victims are the pods that have to leave one node, as sorted "namespace/name".
type victims struct {
	Pods          []string `json:"pods"`
	PDBViolations int64    `json:"pdbViolations"`
}

// newPreemption makes the plugin as the framework does. The framework has one
// of its own but keeps it to itself.
func newPreemption(ctx context.Context, f framework.Framework, profile *config.KubeSchedulerProfile) (*defaultpreemption.DefaultPreemption, error) {
	enabled := func(p config.Plugin) bool { return p.Name == names.DefaultPreemption }
	if !slices.ContainsFunc(f.ListPlugins().PostFilter.Enabled, enabled) {
		return nil, nil
	}
	for _, c := range profile.PluginConfig {
		if c.Name != names.DefaultPreemption {
			continue
		}
		plugin, err := registry[names.DefaultPreemption](ctx, c.Args, f)
		if err != nil {
			return nil, err
		}
		pl, ok := plugin.(*defaultpreemption.DefaultPreemption)
		if !ok {
			return nil, fmt.Errorf("unexpected plugin %T", plugin)
		}
		return pl, nil
	}
	return nil, errors.New("the profile has no arguments for the plugin")
}

// preempt does what the plugin's PostFilter does up to the choice of a
// candidate, and over all nodes instead of a sample. It never calls anything
// that evicts: PostFilter itself is run only where it cannot come to that.
func (s *scheduler) preempt(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses *framework.NodeToStatus) (*preemptionPlan, error) {
	pl := s.preemption
	if pl == nil {
		return nil, nil
	}
	plan := &preemptionPlan{Candidates: map[string]*victims{}}
	plan.Eligible, _ = pl.PodEligibleToPreemptOthers(ctx, pod, statuses.Get(pod.Status.NominatedNodeName))
	if !plan.Eligible {
		return plan, s.postFilterMessage(ctx, state, pod, statuses, plan)
	}
	nodes, err := statuses.NodesForStatusCode(s.lister.NodeInfos(), fwk.Unschedulable)
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return plan, s.postFilterMessage(ctx, state, pod, statuses, plan)
	}
	pdbs, err := pl.Evaluator.PdbLister.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	// The search ends early once as many candidates are found as are wanted:
	// want more than there can be. Errors of single nodes are in the message
	// if there is no candidate, and otherwise of no consequence.
	all := int32(len(nodes) + 1)
	candidates, _, _ := pl.Evaluator.DryRunPreemption(ctx, state, pod, nodes, pdbs, 0, all)
	for _, c := range candidates {
		found := &victims{PDBViolations: c.Victims().NumPDBViolations}
		for _, victim := range c.Victims().Pods {
			found.Pods = append(found.Pods, victim.Namespace+"/"+victim.Name)
		}
		slices.Sort(found.Pods)
		plan.Candidates[c.Name()] = found
	}
	best := pl.Evaluator.SelectCandidate(ctx, candidates)
	if best == nil {
		return plan, s.postFilterMessage(ctx, state, pod, statuses, plan)
	}
	plan.Node = best.Name()
	// The words of Evaluator.Preempt, which says them once it has evicted.
	plan.Message = fmt.Sprintf("preemption: found a potential placement for pod on node %v, preempting %d victims",
		best.Name(), len(best.Victims().Pods))
	return plan, nil
}

// postFilterMessage adds the message of the real PostFilter. The dry run has
// shown that there is no candidate, so that it ends before it evicts.
func (s *scheduler) postFilterMessage(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses *framework.NodeToStatus, plan *preemptionPlan) error {
	_, status := s.preemption.PostFilter(ctx, state, pod, statuses)
	if status.IsSuccess() {
		return errors.New("PostFilter has found a candidate that the dry run has not")
	}
	plan.Message = status.Message()
	return nil
}
