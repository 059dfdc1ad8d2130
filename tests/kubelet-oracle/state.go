package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// state is what is in use.
type state struct {
	// Shared are the CPUs that no container has for itself.
	Shared []int `json:"shared"`
	// Memory is what is left of each NUMA node.
	Memory []memoryState `json:"memory"`
	// Taken are the devices that containers have, by resource.
	Taken map[string][]string `json:"taken"`
	// Given is what each container has for itself, by pod UID and container.
	Given map[string]map[string]given `json:"given"`
}

type memoryState struct {
	ID          int               `json:"id"`
	Free        map[string]uint64 `json:"free"`
	Allocatable map[string]uint64 `json:"allocatable"`
	Blocks      int               `json:"blocks"`
	Group       []int             `json:"group"`
}

type given struct {
	CPUs    []int               `json:"cpus,omitempty"`
	Memory  []int               `json:"memory,omitempty"`
	Devices map[string][]string `json:"devices,omitempty"`
}

// memoryFile is the memory manager's own record: it tells nobody else of groups.
type memoryFile struct {
	MachineState map[int]struct {
		NumberOfAssignments int `json:"numberOfAssignments"`
		MemoryMap           map[string]struct {
			Allocatable uint64 `json:"allocatable"`
			Free        uint64 `json:"free"`
		} `json:"memoryMap"`
		Cells []int `json:"cells"`
	} `json:"machineState"`
}

func (k *kubelet) state(ctx context.Context) *state {
	logger := klog.FromContext(ctx)
	// Each manager first forgets pods that are gone.
	nobody := &v1.Pod{}
	none := &v1.Container{}
	k.cpus.GetTopologyHints(logger, nobody, none, lifecycle.AddOperation)
	k.memory.GetTopologyHints(logger, nobody, none, lifecycle.AddOperation)
	k.devices.GetTopologyHints(logger, nobody, none, lifecycle.AddOperation)

	now := &state{Taken: map[string][]string{}, Given: map[string]map[string]given{}}
	now.Shared = k.cpus.GetCPUAffinity("", "").List()
	now.Memory = k.memoryState()
	for _, pod := range k.pods() {
		uid := string(pod.UID)
		containers := map[string]given{}
		for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			has := given{CPUs: k.cpus.GetExclusiveCPUs(uid, container.Name).List()}
			for _, block := range k.memory.GetMemory(logger, uid, container.Name) {
				has.Memory = block.NUMAAffinity
			}
			has.Devices = map[string][]string{}
			for resource, devices := range k.devices.GetDevices(uid, container.Name) {
				for id := range devices {
					has.Devices[resource] = append(has.Devices[resource], id)
					now.Taken[resource] = append(now.Taken[resource], id)
				}
			}
			containers[container.Name] = has
		}
		now.Given[uid] = containers
	}
	return now
}

func (k *kubelet) memoryState() []memoryState {
	var file memoryFile
	text, err := os.ReadFile(filepath.Join(k.folder, "memory_manager_state"))
	if err != nil {
		return nil
	}
	if err := json.Unmarshal(text, &file); err != nil {
		panic(err)
	}
	var all []memoryState
	for id, node := range file.MachineState {
		one := memoryState{ID: id, Free: map[string]uint64{}, Allocatable: map[string]uint64{}, Blocks: node.NumberOfAssignments, Group: node.Cells}
		for name, table := range node.MemoryMap {
			one.Free[name], one.Allocatable[name] = table.Free, table.Allocatable
		}
		all = append(all, one)
	}
	return all
}
