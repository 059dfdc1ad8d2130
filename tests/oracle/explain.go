package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
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
}

type verdict struct {
	Status  string           `json:"status"`
	Plugin  string           `json:"plugin,omitempty"`
	Reasons []string         `json:"reasons,omitempty"`
	Scores  map[string]int64 `json:"scores,omitempty"`
	Total   *int64           `json:"total,omitempty"`
}

// registry is shared: factories have no state of their own.
var registry = plugins.NewInTreeRegistry()

// scheduler is one profile over one cluster.
type scheduler struct {
	cluster *cluster
	lister  *swappableLister
	framework.Framework
}

// swappableLister lets one framework look at one snapshot after another.
type swappableLister struct{ fwk.SharedLister }

func newScheduler(ctx context.Context, c *cluster, rawProfile json.RawMessage) (*scheduler, error) {
	profile, err := loadProfile(rawProfile)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	factory := newFactory()
	dra, err := newDRAManager(ctx, factory, c.hasDRA)
	if err != nil {
		return nil, err
	}
	// Plugins look at it in their cycles only; explain puts the real one there.
	lister := &swappableLister{internalcache.NewEmptySnapshot()}
	f, err := frameworkruntime.NewFramework(ctx, registry, profile,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedDRAManager(dra),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithSnapshotSharedLister(lister),
		frameworkruntime.WithParallelism(1),
	)
	if err != nil {
		return nil, fmt.Errorf("framework: %w", err)
	}
	if err := factory.fill(c.others); err != nil {
		return nil, err
	}
	return &scheduler{cluster: c, lister: lister, Framework: f}, nil
}

// defaultProfile is that of a kube-scheduler without a configuration file.
var defaultProfile = func() *config.KubeSchedulerProfile {
	cfg, err := latest.Default()
	if err != nil {
		panic(err)
	}
	return &cfg.Profiles[0]
}()

// loadProfile reads one item of KubeSchedulerConfiguration v1 "profiles", with
// upstream's defaulting and merging.
func loadProfile(raw json.RawMessage) (*config.KubeSchedulerProfile, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return defaultProfile.DeepCopy(), nil
	}
	data := fmt.Sprintf(`{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"KubeSchedulerConfiguration","profiles":[%s]}`, raw)
	obj, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(data), nil, nil)
	if err != nil {
		return nil, err
	}
	cfg, ok := obj.(*config.KubeSchedulerConfiguration)
	if !ok || len(cfg.Profiles) != 1 {
		return nil, errors.New("one profile expected")
	}
	return &cfg.Profiles[0], nil
}

// newDRAManager wires dynamic resources as scheduler.New does. Without any
// object of that group an empty manager is enough and much cheaper.
func newDRAManager(ctx context.Context, f *factory, used bool) (fwk.SharedDRAManager, error) {
	logger := klog.FromContext(ctx)
	claims := assumecache.NewAssumeCache(logger, f.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	if !used {
		return dynamicresources.NewDRAManager(ctx, claims, nil, f), nil
	}
	tracker, err := resourceslicetracker.StartTracker(ctx, resourceslicetracker.Options{
		EnableDeviceTaintRules:   true,
		EnableConsumableCapacity: true,
		SliceInformer:            f.Resource().V1().ResourceSlices(),
		TaintInformer:            f.Resource().V1().DeviceTaintRules(),
	})
	if err != nil {
		return nil, err
	}
	manager := dynamicresources.NewDRAManager(ctx, claims, tracker, f)
	if resolver, ok := manager.DeviceClassResolver().(*extendedresourcecache.ExtendedResourceCache); ok {
		if _, err := f.Resource().V1().DeviceClasses().Informer().AddEventHandler(resolver); err != nil {
			return nil, err
		}
	}
	return manager, nil
}

// explain runs PreFilter, Filter, PreScore and Score for a pod, as the cycle
// of kube-scheduler does, except that every node is looked at and every
// feasible node is scored.
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
	s.lister.SharedLister = snapshot
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
		result.Message = s.fitError(pod, diagnosis)
		return result, state, nil
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
		status := s.RunFilterPlugins(ctx, state, pod, info)
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
		result.Message = s.fitError(pod, diagnosis)
	default:
		s.score(ctx, state, pod, feasible, result)
	}
	return result, state, nil
}

func (s *scheduler) fitError(pod *v1.Pod, diagnosis framework.Diagnosis) string {
	return (&framework.FitError{Pod: pod, NumAllNodes: len(s.cluster.nodes), Diagnosis: diagnosis}).Error()
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
