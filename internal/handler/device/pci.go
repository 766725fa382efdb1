package device

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
)

// pace is how often the node's devices are looked at: sysfs has no other way to report a change.
const pace = 5 * time.Second

// PCI offers the node's PCI devices, as the resources that the KubeVirt object permits (decision 405). It keeps nothing
// on the node: the kubelet remembers which pod has which device.
type PCI struct {
	// Sys is the node's /sys, and Dev its /dev.
	Sys, Dev fs.FS
	// Dir is the kubelet's folder of device plugins.
	Dir string
	// Permitted returns the permitted resources.
	Permitted func() hostdevice.Permitted
	Log       logr.Logger

	offers map[string][]hostdevice.Offer
	// serving are the plugins that run, by their resources.
	serving map[string]*serving
}

type serving struct {
	offered *offered
	end     context.CancelFunc
	ended   chan struct{}
}

// Run offers devices until ctx ends. A resource is offered from its first device on, and until it is not permitted any
// more.
func (p *PCI) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for {
			p.round(ctx, group)
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	})
	return group.Wait()
}

func (p *PCI) round(ctx context.Context, group *errgroup.Group) {
	local := p.Permitted().Local()
	if len(local) == 0 && len(p.serving) == 0 {
		p.offers = nil
		return
	}
	found, err := scan(p.Sys, p.Dev)
	if err != nil {
		p.Log.Error(err, "looking at the node's PCI devices; they stay as they were")
		return
	}
	p.offers = hostdevice.Offers(local, found, p.offers)
	for name, s := range p.serving {
		if slices.ContainsFunc(local, func(r hostdevice.Resource) bool { return r.Name == name }) {
			continue
		}
		s.end()
		<-s.ended
		delete(p.serving, name)
		p.Log.Info("not permitted any more, and not offered", "resource", name)
	}
	for _, name := range slices.Sorted(maps.Keys(p.offers)) {
		s := p.serving[name]
		if s == nil {
			s = p.serve(ctx, group, name)
		}
		if s.offered.set(p.offers[name]) {
			p.Log.Info("the node's devices", "resource", name, "devices", p.offers[name])
		}
	}
}

func (p *PCI) serve(ctx context.Context, group *errgroup.Group, name string) *serving {
	ctx, end := context.WithCancel(ctx)
	s := &serving{offered: newOffered(name), end: end, ended: make(chan struct{})}
	// The kubelet must not see an empty list first.
	s.offered.set(p.offers[name])
	plugin := newPlugin(name, s.offered, p.Dir, p.Log)
	group.Go(func() error {
		defer close(s.ended)
		defer end()
		return plugin.Run(ctx)
	})
	if p.serving == nil {
		p.serving = map[string]*serving{}
	}
	p.serving[name] = s
	return s
}

// offered is the source of a resource of PCI devices. It is safe for concurrent use.
type offered struct {
	resource string

	mu      sync.Mutex
	list    []hostdevice.Offer
	changed chan struct{}
}

func newOffered(resource string) *offered {
	return &offered{resource: resource, changed: make(chan struct{})}
}

// set reports whether the devices have changed.
func (o *offered) set(list []hostdevice.Offer) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Equal(o.list, list) {
		return false
	}
	o.list = list
	close(o.changed)
	o.changed = make(chan struct{})
	return true
}

func (o *offered) devices() ([]*v1beta1.Device, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := []*v1beta1.Device{}
	for _, offer := range o.list {
		device := &v1beta1.Device{ID: offer.Address, Health: v1beta1.Healthy}
		if offer.Ill != "" {
			device.Health = v1beta1.Unhealthy
		}
		if offer.NUMA >= 0 {
			device.Topology = &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: offer.NUMA}}}
		}
		list = append(list, device)
	}
	return list, o.changed
}

// allocate refuses devices that are ill or unknown: the kubelet may have chosen them before it was told, and ends the
// pod with the message.
func (o *offered) allocate(ids []string) (*v1beta1.ContainerAllocateResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	answer := &v1beta1.ContainerAllocateResponse{Envs: map[string]string{hostdevice.Variable(o.resource): strings.Join(slices.Sorted(slices.Values(ids)), ",")}}
	give(answer, path.Join(layout.VFIODir, "vfio"))
	for _, id := range ids {
		at := slices.IndexFunc(o.list, func(offer hostdevice.Offer) bool { return offer.Address == id })
		switch {
		case at < 0:
			return nil, fmt.Errorf("the node offers no device %s as %s", id, o.resource)
		case o.list[at].Ill != "":
			return nil, fmt.Errorf("the device %s of %s can't be given to a guest: %s", id, o.resource, o.list[at].Ill)
		}
		give(answer, path.Join(layout.VFIODir, o.list[at].Group))
	}
	return answer, nil
}
