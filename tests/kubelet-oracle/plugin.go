package main

import (
	"context"
	"math/rand/v2"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// deviceResource is what a device plugin reports.
type deviceResource struct {
	Resource string `json:"resource"`
	// Chooses says that the plugin has wishes which devices to give.
	Chooses bool     `json:"chooses"`
	Devices []device `json:"devices"`
}

type device struct {
	ID string `json:"id"`
	// Numa is null if the plugin says nothing of where the device is.
	Numa    *[]int64 `json:"numa"`
	Healthy bool     `json:"healthy"`
}

// report connects a plugin if it is new, and tells the device manager what it has.
func (k *kubelet) report(ctx context.Context, r *deviceResource) error {
	if k.plugins == nil {
		k.plugins = map[string]bool{}
	}
	if !k.plugins[r.Resource] {
		k.plugins[r.Resource] = true
		if err := k.devices.PluginConnected(ctx, r.Resource, &plugin{resource: r.Resource, chooses: r.Chooses}); err != nil {
			return err
		}
	}
	list := &pluginapi.ListAndWatchResponse{}
	for _, d := range r.Devices {
		one := &pluginapi.Device{ID: d.ID, Health: pluginapi.Unhealthy}
		if d.Healthy {
			one.Health = pluginapi.Healthy
		}
		if d.Numa != nil {
			one.Topology = &pluginapi.TopologyInfo{}
			for _, id := range *d.Numa {
				one.Topology.Nodes = append(one.Topology.Nodes, &pluginapi.NUMANode{ID: id})
			}
		}
		list.Devices = append(list.Devices, one)
	}
	k.devices.PluginListAndWatchReceiver(klog.FromContext(ctx), r.Resource, list)
	return nil
}

// plugin is a device plugin that gives whatever it is asked for. If it has
// wishes they are arbitrary: a prediction must hold whatever a plugin wants.
type plugin struct {
	resource string
	chooses  bool
}

func (p *plugin) API() pluginapi.DevicePluginClient { return p }
func (p *plugin) Resource() string                  { return p.resource }
func (p *plugin) SocketPath() string                { return "/var/lib/" + p.resource }

func (p *plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty, ...grpc.CallOption) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: p.chooses}, nil
}

func (p *plugin) ListAndWatch(context.Context, *pluginapi.Empty, ...grpc.CallOption) (grpc.ServerStreamingClient[pluginapi.ListAndWatchResponse], error) {
	panic("lists are reported")
}

func (p *plugin) GetPreferredAllocation(_ context.Context, in *pluginapi.PreferredAllocationRequest, _ ...grpc.CallOption) (*pluginapi.PreferredAllocationResponse, error) {
	out := &pluginapi.PreferredAllocationResponse{}
	for _, request := range in.ContainerRequests {
		ids := append([]string(nil), request.AvailableDeviceIDs...)
		rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		// Fewer than asked for are allowed, too.
		wished := min(rand.IntN(int(request.AllocationSize)+1), len(ids))
		if rand.IntN(2) == 0 {
			wished = min(int(request.AllocationSize), len(ids))
		}
		ids = append(ids[:wished:wished], request.MustIncludeDeviceIDs...)
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return out, nil
}

func (p *plugin) Allocate(_ context.Context, in *pluginapi.AllocateRequest, _ ...grpc.CallOption) (*pluginapi.AllocateResponse, error) {
	out := &pluginapi.AllocateResponse{}
	for range in.ContainerRequests {
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerAllocateResponse{})
	}
	return out, nil
}

func (p *plugin) PreStartContainer(context.Context, *pluginapi.PreStartContainerRequest, ...grpc.CallOption) (*pluginapi.PreStartContainerResponse, error) {
	return &pluginapi.PreStartContainerResponse{}, nil
}
