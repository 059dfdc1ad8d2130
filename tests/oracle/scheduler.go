package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// registry is shared: factories have no state of their own.
var registry = plugins.NewInTreeRegistry()

// scheduler is one profile over one cluster.
type scheduler struct {
	cluster *cluster
	lister  *swappableLister
	// preemption is nil if the profile does without.
	preemption *defaultpreemption.DefaultPreemption
	framework.Framework
}

// swappableLister lets one framework look at one snapshot after another.
type swappableLister struct {
	fwk.MutableSnapshotSharedLister
}

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
	nominator := newNominator(factory)
	f, err := frameworkruntime.NewFramework(ctx, registry, profile,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedDRAManager(dra),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithSnapshotSharedLister(lister),
		frameworkruntime.WithMutableSnapshotLister(lister),
		frameworkruntime.WithPodNominator(nominator),
		frameworkruntime.WithParallelism(1),
	)
	if err != nil {
		return nil, fmt.Errorf("framework: %w", err)
	}
	// It asks for informers, so it comes before they are filled.
	preemption, err := newPreemption(ctx, f, profile)
	if err != nil {
		return nil, fmt.Errorf("preemption: %w", err)
	}
	if err := factory.fill(c.others); err != nil {
		return nil, err
	}
	for _, pod := range c.nominated {
		// Pods of other schedulers never come into the queue.
		if pod.Spec.SchedulerName == f.ProfileName() {
			nominator.Add(ctx, pod)
		}
	}
	return &scheduler{cluster: c, lister: lister, preemption: preemption, Framework: f}, nil
}

// newNominator is a scheduling queue, because upstream's nominator is part of
// one. Nothing is ever popped, so the order of its pods does not matter.
func newNominator(f *factory) *internalqueue.PriorityQueue {
	noOrder := func(_, _ fwk.QueuedEntityInfo) bool { return false }
	return internalqueue.NewPriorityQueue(noOrder, f)
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
