package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

// machine is what a kubelet finds, and how it is set.
type machine struct {
	Policy          string            `json:"policy"`
	Scope           string            `json:"scope"`
	PolicyOptions   map[string]string `json:"policyOptions"`
	CPUPolicy       string            `json:"cpuPolicy"`
	CPUOptions      map[string]string `json:"cpuOptions"`
	MemoryPolicy    string            `json:"memoryPolicy"`
	Nodes           []numaNode        `json:"nodes"`
	ReservedCPUs    []int             `json:"reservedCpus"`
	ReservedCount   int               `json:"reservedCount"`
	DeviceResources []deviceResource  `json:"devices"`
}

type numaNode struct {
	ID        int                `json:"id"`
	Distances []uint64           `json:"distances"`
	Memory    uint64             `json:"memory"`
	Hugepages []hugepages        `json:"hugepages"`
	Reserved  map[string]uint64  `json:"reserved"`
	Cores     []cadvisorapi.Core `json:"cores"`
}

type hugepages struct {
	KiB   uint64 `json:"kib"`
	Pages uint64 `json:"pages"`
}

// kubelet is the managers that decide whether a pod is admitted.
type kubelet struct {
	mutex    sync.Mutex
	active   []*v1.Pod
	topology topologymanager.Manager
	cpus     cpumanager.Manager
	memory   memorymanager.Manager
	devices  *devicemanager.ManagerImpl
	folder   string
	plugins  map[string]bool
}

// checkpoint is where the device manager keeps what it gave away.
const checkpoint = "/var/lib/kubelet/device-plugins"

func open(ctx context.Context, m *machine) (*kubelet, error) {
	logger := klog.FromContext(ctx)
	if err := os.RemoveAll(checkpoint); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(checkpoint, 0o750); err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("/var/lib", "state-")
	if err != nil {
		return nil, err
	}
	k := &kubelet{folder: folder}
	info := m.info()
	if k.topology, err = topologymanager.NewManager(logger, info.Topology, m.Policy, m.Scope, m.PolicyOptions); err != nil {
		return nil, fmt.Errorf("topology manager: %w", err)
	}
	if k.devices, err = devicemanager.NewManagerImpl(logger, info.Topology, k.topology); err != nil {
		return nil, fmt.Errorf("device manager: %w", err)
	}
	reservation, byNode := m.reservation()
	if k.cpus, err = cpumanager.NewManager(logger, m.CPUPolicy, m.CPUOptions, 10_000*time.Hour, info,
		cpuset.New(m.ReservedCPUs...), reservation, folder, k.topology); err != nil {
		return nil, fmt.Errorf("cpu manager: %w", err)
	}
	if k.memory, err = memorymanager.NewManager(logger, m.MemoryPolicy, info, reservation, byNode, folder, k.topology); err != nil {
		return nil, fmt.Errorf("memory manager: %w", err)
	}
	// In the kubelet's order.
	k.topology.AddHintProvider(logger, k.devices)
	k.topology.AddHintProvider(logger, k.cpus)
	k.topology.AddHintProvider(logger, k.memory)
	if err := k.start(ctx); err != nil {
		return nil, err
	}
	for i := range m.DeviceResources {
		if err := k.report(ctx, &m.DeviceResources[i]); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (k *kubelet) start(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	if err := k.cpus.Start(ctx, k.pods, ready{}, noStatus{}, noRuntime{}, containermap.NewContainerMap()); err != nil {
		return fmt.Errorf("start the cpu manager: %w", err)
	}
	if err := k.memory.Start(ctx, k.pods, ready{}, noStatus{}, noRuntime{}, containermap.NewContainerMap()); err != nil {
		return fmt.Errorf("start the memory manager: %w", err)
	}
	if err := k.devices.Start(logger, k.pods, ready{}, containermap.NewContainerMap(), sets.New[string]()); err != nil {
		return fmt.Errorf("start the device manager: %w", err)
	}
	return nil
}

func (k *kubelet) close() {
	_ = k.devices.Stop(klog.Background())
	_ = os.RemoveAll(k.folder)
}

// pods are those that the managers take for alive.
func (k *kubelet) pods() []*v1.Pod {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return append([]*v1.Pod(nil), k.active...)
}

func (k *kubelet) admit(ctx context.Context, pod *v1.Pod) answer {
	k.mutex.Lock()
	// A pod is alive to the managers while it is being admitted.
	k.active = append(k.active, pod)
	k.mutex.Unlock()
	attributes := &lifecycle.PodAdmitAttributes{Pod: pod, Operation: lifecycle.AddOperation}
	result := k.topology.Admit(ctx, attributes)
	if !result.Admit {
		k.remove(string(pod.UID))
	}
	return answer{Admitted: result.Admit, Reason: result.Reason, Message: result.Message}
}

func (k *kubelet) remove(uid string) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	var left []*v1.Pod
	for _, pod := range k.active {
		if pod.UID != types.UID(uid) {
			left = append(left, pod)
		}
	}
	k.active = left
}

// info is the machine as cAdvisor would report it.
func (m *machine) info() *cadvisorapi.MachineInfo {
	info := &cadvisorapi.MachineInfo{}
	sockets := sets.New[int]()
	for _, node := range m.Nodes {
		built := cadvisorapi.Node{Id: node.ID, Memory: node.Memory, Distances: node.Distances, Cores: node.Cores}
		for _, pages := range node.Hugepages {
			built.HugePages = append(built.HugePages, cadvisorapi.HugePagesInfo{PageSize: pages.KiB, NumPages: pages.Pages})
		}
		for _, core := range node.Cores {
			info.NumCores += len(core.Threads)
			sockets.Insert(core.SocketID)
		}
		info.Topology = append(info.Topology, built)
	}
	info.NumSockets = sockets.Len()
	return info
}

// reservation is what is kept for the system: in total, and memory per node.
func (m *machine) reservation() (v1.ResourceList, []kubeletconfig.MemoryReservation) {
	count := max(len(m.ReservedCPUs), m.ReservedCount)
	total := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(count), resource.DecimalSI)}
	var byNode []kubeletconfig.MemoryReservation
	for _, node := range m.Nodes {
		limits := v1.ResourceList{}
		for name, bytes := range node.Reserved {
			quantity := *resource.NewQuantity(int64(bytes), resource.BinarySI)
			limits[v1.ResourceName(name)] = quantity
			sum := total[v1.ResourceName(name)]
			sum.Add(quantity)
			total[v1.ResourceName(name)] = sum
		}
		if len(limits) > 0 {
			byNode = append(byNode, kubeletconfig.MemoryReservation{NumaNode: int32(node.ID), Limits: limits})
		}
	}
	return total, byNode
}

type ready struct{}

func (ready) AddSource(string) {}
func (ready) AllReady() bool   { return true }

type noStatus struct{}

func (noStatus) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

type noRuntime struct{}

func (noRuntime) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return nil
}
