package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"sort"
	"time"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

// cluster holds the objects of one state as the scheduler's caches would.
type cluster struct {
	nodes []*v1.Node
	// bound are the pods that occupy a node; assumed ones are appended.
	bound []*v1.Pod
	// nominated are the waiting pods that have been promised a node.
	nominated []*v1.Pod
	// pods are all pods by "namespace/name".
	pods map[string]*v1.Pod
	// others are the objects that plugins read through informers.
	others []runtime.Object
	// hasDRA is set if an object of resource.k8s.io is among them.
	hasDRA bool
}

func newCluster(raw []json.RawMessage) (*cluster, error) {
	c := &cluster{pods: map[string]*v1.Pod{}}
	nodeNames := map[string]bool{}
	var podList []*v1.Pod
	for i, data := range raw {
		obj, err := decode(data)
		if err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
		switch obj := obj.(type) {
		case *v1.Node:
			if nodeNames[obj.Name] {
				return nil, fmt.Errorf("objects[%d]: node %q is there twice", i, obj.Name)
			}
			nodeNames[obj.Name] = true
			c.nodes = append(c.nodes, obj)
		case *v1.Pod:
			if obj.Namespace == "" {
				obj.Namespace = metav1.NamespaceDefault
			}
			key := obj.Namespace + "/" + obj.Name
			if c.pods[key] != nil {
				return nil, fmt.Errorf("objects[%d]: pod %q is there twice", i, key)
			}
			c.pods[key] = obj
			podList = append(podList, obj)
		}
		if obj.GetObjectKind().GroupVersionKind().Group == "resource.k8s.io" {
			c.hasDRA = true
		}
		c.others = append(c.others, obj)
	}
	for _, pod := range podList {
		// The scheduler's informer drops finished pods by a field selector, and
		// its cache keeps pods of unknown nodes out of the snapshot.
		finished := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		switch {
		case finished:
		case nodeNames[pod.Spec.NodeName]:
			c.bound = append(c.bound, pod)
		case pod.Spec.NodeName == "" && pod.Status.NominatedNodeName != "":
			c.nominated = append(c.nominated, pod)
		}
	}
	sort.Slice(c.nodes, func(i, j int) bool { return c.nodes[i].Name < c.nodes[j].Name })
	return c, nil
}

// snapshot is the cluster as a scheduling cycle of the given pod sees it.
func (c *cluster) snapshot(pod *v1.Pod) *internalcache.Snapshot {
	bound := make([]*v1.Pod, 0, len(c.bound))
	for _, other := range c.bound {
		if other != pod {
			bound = append(bound, other)
		}
	}
	return internalcache.NewSnapshot(bound, c.nodes)
}

// fraction finds quantities such as "1.5Gi".
var fraction = regexp.MustCompile(`"\d*\.\d*[KMGTPE]i"`)

// decode reads one object as the API machinery would, without defaulting.
//
// The API server hands out quantities in canonical form ("1536Mi"). It matters:
// upstream's PodRequests adds a pod's overhead into the quantity of its
// pod-level resources if that is held as a big decimal, which is the case for
// fractions of binary units only, and so changes the pod with every call.
func decode(data []byte) (runtime.Object, error) {
	return decodeExactly(fraction.ReplaceAllFunc(data, func(quoted []byte) []byte {
		quantity, err := apiresource.ParseQuantity(string(quoted[1 : len(quoted)-1]))
		if err != nil {
			return quoted // the decoder will say what is wrong with it
		}
		return []byte(`"` + quantity.String() + `"`)
	}))
}

func decodeExactly(data []byte) (runtime.Object, error) {
	var kind metav1.TypeMeta
	if err := json.Unmarshal(data, &kind); err != nil {
		return nil, err
	}
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	obj, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	if err := kjson.Unmarshal(data, obj); err != nil {
		return nil, fmt.Errorf("%s: %w", gvk.Kind, err)
	}
	return obj, nil
}

// client is never called: informers want one at construction.
var client = kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://127.0.0.1:1"})

// factory hands out informers that are filled by hand. Handlers run at once,
// in the caller's goroutine: there is nothing to wait for.
type factory struct {
	informers.SharedInformerFactory
	byType map[reflect.Type]*informer
}

func newFactory() *factory {
	return &factory{
		SharedInformerFactory: informers.NewSharedInformerFactory(client, 0),
		byType:                map[reflect.Type]*informer{},
	}
}

func (f *factory) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	key := reflect.TypeOf(obj)
	found := f.byType[key]
	if found == nil {
		found = &informer{SharedIndexInformer: newFunc(client, 0)}
		f.byType[key] = found
	}
	return found
}

func (f *factory) Apps() apps.Interface         { return apps.New(f, metav1.NamespaceAll, nil) }
func (f *factory) Core() core.Interface         { return core.New(f, metav1.NamespaceAll, nil) }
func (f *factory) Policy() policy.Interface     { return policy.New(f, metav1.NamespaceAll, nil) }
func (f *factory) Resource() resource.Interface { return resource.New(f, metav1.NamespaceAll, nil) }
func (f *factory) Scheduling() scheduling.Interface {
	return scheduling.New(f, metav1.NamespaceAll, nil)
}
func (f *factory) Storage() storage.Interface { return storage.New(f, metav1.NamespaceAll, nil) }

// fill delivers the objects to the informers that the plugins asked for.
func (f *factory) fill(objects []runtime.Object) error {
	for _, obj := range objects {
		target := f.byType[reflect.TypeOf(obj)]
		if target == nil {
			continue
		}
		if err := target.GetIndexer().Add(obj); err != nil {
			return err
		}
		for _, handler := range target.handlers {
			handler.OnAdd(obj, true)
		}
	}
	return nil
}

type informer struct {
	cache.SharedIndexInformer
	handlers []cache.ResourceEventHandler
}

func (i *informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, handler)
	return registration{}, nil
}

func (i *informer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

func (i *informer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

func (i *informer) HasSynced() bool { return true }

func (i *informer) HasSyncedChecker() cache.DoneChecker { return synced{} }

// registration and synced say that all there is has been delivered.
type registration struct{}

func (registration) HasSynced() bool                     { return true }
func (registration) HasSyncedChecker() cache.DoneChecker { return synced{} }

type synced struct{}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (synced) Name() string          { return "oracle" }
func (synced) Done() <-chan struct{} { return closed }
