package main

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

const (
	statusOK             = "ok"
	statusUnschedulable  = "U"
	statusUnresolvable   = "UU"
	statusError          = "E"
	noNodesAvailableText = "no nodes available to schedule pods"
)

// explanation is the answer for one pod; the same document as that of
// `muster explain -o json`. Empty members are left out.
type explanation struct {
	Pod            string              `json:"pod"`
	EvaluatedNodes int                 `json:"evaluatedNodes"`
	FeasibleNodes  int                 `json:"feasibleNodes"`
	Nodes          map[string]*verdict `json:"nodes"`
	Message        string              `json:"message,omitempty"`
	Preemption     *preemptionPlan     `json:"preemption,omitempty"`
}

type verdict struct {
	Status  string           `json:"status"`
	Plugin  string           `json:"plugin,omitempty"`
	Reasons []string         `json:"reasons,omitempty"`
	Scores  map[string]int64 `json:"scores,omitempty"`
	Total   *int64           `json:"total,omitempty"`
}

// explain runs PreFilter, Filter, PreScore and Score for a pod, as the cycle
// of kube-scheduler does, except that every node is looked at and every
// feasible node is scored, and that the node the pod itself is nominated for is
// a node like any other. If no node is feasible it runs the evaluation of the
// preemption.
func (s *scheduler) explain(ctx context.Context, name string) (*explanation, fwk.CycleState, error) {
	pod := s.cluster.pods[name]
	if pod == nil {
		return nil, nil, fmt.Errorf("pod %q is not among the objects", name)
	}
	result := &explanation{Pod: name, Nodes: make(map[string]*verdict, len(s.cluster.nodes))}
	if len(s.cluster.nodes) == 0 {
		result.Message = noNodesAvailableText
		return result, nil, nil
	}
	snapshot := s.cluster.snapshot(pod)
	s.lister.MutableSnapshotSharedLister = snapshot
	state := framework.NewCycleState()
	diagnosis := framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}

	preFilter, status, narrowing := s.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		for _, node := range s.cluster.nodes {
			result.Nodes[node.Name] = rejection(status)
		}
		if !status.IsRejected() {
			result.Message = status.AsError().Error()
			return result, state, nil
		}
		diagnosis.NodeToStatus.SetAbsentNodesStatus(status)
		diagnosis.PreFilterMsg = status.Message()
		return result, state, s.reject(ctx, state, pod, diagnosis, result)
	}
	if !preFilter.AllNodes() {
		diagnosis.NodeToStatus.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
			fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sets.List(narrowing))))
	}

	var feasible []fwk.NodeInfo
	var failure string
	for _, node := range s.cluster.nodes {
		if !preFilter.AllNodes() && !preFilter.NodeNames.Has(node.Name) {
			result.Nodes[node.Name] = rejection(diagnosis.NodeToStatus.AbsentNodesStatus())
			continue
		}
		info, err := snapshot.NodeInfos().Get(node.Name)
		if err != nil {
			return nil, nil, err
		}
		result.EvaluatedNodes++
		status := s.RunFilterPluginsWithNominatedPods(ctx, state, pod, info)
		if status.IsSuccess() {
			feasible = append(feasible, info)
			result.Nodes[node.Name] = &verdict{Status: statusOK}
			continue
		}
		diagnosis.NodeToStatus.Set(node.Name, status)
		result.Nodes[node.Name] = rejection(status)
		if !status.IsRejected() && failure == "" {
			failure = status.AsError().Error()
		}
	}
	result.FeasibleNodes = len(feasible)
	switch {
	case failure != "":
		// Upstream gives up at the first error, whichever comes first; the first
		// by name is reported here, and nothing is scored.
		result.Message = failure
	case len(feasible) == 0:
		return result, state, s.reject(ctx, state, pod, diagnosis, result)
	default:
		s.score(ctx, state, pod, feasible, result)
	}
	return result, state, nil
}

// reject says why the pod fits nowhere, and what evictions would change. The
// message is that of the filters alone; that of the preemption is its own.
func (s *scheduler) reject(ctx context.Context, state fwk.CycleState, pod *v1.Pod, diagnosis framework.Diagnosis, result *explanation) error {
	result.Message = (&framework.FitError{Pod: pod, NumAllNodes: len(s.cluster.nodes), Diagnosis: diagnosis}).Error()
	var err error
	result.Preemption, err = s.preempt(ctx, state, pod, diagnosis.NodeToStatus)
	return err
}

// score adds weighted scores to the verdicts of the feasible nodes, or turns
// them all into an error, since upstream would abort the attempt.
func (s *scheduler) score(ctx context.Context, state fwk.CycleState, pod *v1.Pod, feasible []fwk.NodeInfo, result *explanation) {
	var scores []fwk.NodePluginScores
	status := s.RunPreScorePlugins(ctx, state, pod, feasible)
	if status.IsSuccess() {
		scores, status = s.RunScorePlugins(ctx, state, pod, feasible)
	}
	if !status.IsSuccess() {
		result.Message = status.AsError().Error()
		for _, info := range feasible {
			result.Nodes[info.Node().Name] = rejection(status)
		}
		return
	}
	for i := range scores {
		node := result.Nodes[scores[i].Name]
		node.Total = &scores[i].TotalScore
		node.Scores = make(map[string]int64, len(scores[i].Scores))
		for _, score := range scores[i].Scores {
			node.Scores[score.Name] = score.Score
		}
	}
}

// assume places the pod on a node, as the cycle does before binding.
func (s *scheduler) assume(ctx context.Context, state fwk.CycleState, name, node string) error {
	pod := s.cluster.pods[name]
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = node
	if status := s.RunReservePluginsReserve(ctx, state, assumed, node); !status.IsSuccess() {
		return status.AsError()
	}
	s.cluster.pods[name] = assumed
	s.cluster.bound = append(slices.DeleteFunc(s.cluster.bound, func(p *v1.Pod) bool { return p == pod }), assumed)
	return nil
}

// rejection puts a status into words.
func rejection(status *fwk.Status) *verdict {
	v := &verdict{Plugin: status.Plugin(), Reasons: append([]string(nil), status.Reasons()...)}
	switch status.Code() {
	case fwk.Unschedulable:
		v.Status = statusUnschedulable
	case fwk.UnschedulableAndUnresolvable:
		v.Status = statusUnresolvable
	default:
		v.Status = statusError
	}
	if v.Plugin == names.NodeResourcesFit {
		sortScalars(v.Reasons)
	}
	return v
}

// sortScalars gives NodeResourcesFit's reasons an order: upstream walks scalar
// resources, which come after the named ones, in the order of a Go map.
func sortScalars(reasons []string) {
	first := len(reasons)
	for first > 0 && isScalarReason(reasons[first-1]) {
		first--
	}
	sort.Strings(reasons[first:])
}

func isScalarReason(reason string) bool {
	name, ok := strings.CutPrefix(reason, "Insufficient ")
	if !ok {
		return false
	}
	switch v1.ResourceName(name) {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage:
		return false
	}
	return true
}
