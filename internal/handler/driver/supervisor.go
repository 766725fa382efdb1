package driver

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/connection"
	"drydock.dev/drydock/internal/handler/guestagent"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/handler/runningguest"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugpod"
)

// Supervisor runs one driver for each VMI of the node. The watches of VMIs and pods call its methods, which never
// block.
type Supervisor struct {
	env *Env

	mu      sync.Mutex
	ctx     context.Context
	ended   bool
	drivers map[types.UID]*Driver
	// The pods are by VMI and pod UID.
	pods           map[owner]map[types.UID]*corev1.Pod
	attachmentPods map[owner]map[types.UID]hotplug.Pod
	// waiting has VMIs seen before Run.
	waiting map[types.UID]*v1.VirtualMachineInstance
	// shown has the watches that show a VMI.
	shown   map[types.UID]map[Watch]bool
	running sync.WaitGroup
}

// owner identifies the VMI to which a pod claims to belong. A VMI's UID is no secret: a claim from another namespace must
// not count.
type owner struct {
	namespace string
	uid       types.UID
}

func ownerOf(pod *corev1.Pod) owner {
	return owner{namespace: pod.Namespace, uid: types.UID(pod.Labels[v1.CreatedByLabel])}
}

// NewSupervisor returns a Supervisor. Its drivers start with Run.
func NewSupervisor(env *Env) *Supervisor {
	env.Cluster = boundedCluster{env.Cluster}
	env.agents, env.agentsForFigures = guestagent.NewPlaces(), guestagent.NewPlacesForFigures()
	env.connections = &connection.Env{Pods: env.Pods, Watcher: env.Watcher, SELinux: env.SELinux, Belongs: env.Belongs}
	return &Supervisor{
		env: env, drivers: map[types.UID]*Driver{},
		pods:           map[owner]map[types.UID]*corev1.Pod{},
		attachmentPods: map[owner]map[types.UID]hotplug.Pod{},
		waiting:        map[types.UID]*v1.VirtualMachineInstance{},
		shown:          map[types.UID]map[Watch]bool{},
	}
}

// Run manages the VMIs until ctx ends, and returns when every driver has ended. Call it after VMIs and pods were listed:
// a driver that does not know all of them would act late.
func (s *Supervisor) Run(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	for _, instance := range s.waiting {
		s.startDriver(instance)
	}
	s.waiting = nil
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// Watch names a watch of VMIs. When a guest has arrived, one watch may stop showing its VMI before the other begins.
type Watch string

const (
	// Here shows the VMIs whose guests are on this node.
	Here Watch = "here"
	// Coming shows the VMIs that migrate to this node.
	Coming Watch = "coming"
)

// VMISeen records a VMI that a watch shows.
func (s *Supervisor) VMISeen(by Watch, instance *v1.VirtualMachineInstance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown[instance.UID] == nil {
		s.shown[instance.UID] = map[Watch]bool{}
	}
	s.shown[instance.UID][by] = true
	if d, ok := s.drivers[instance.UID]; ok {
		d.presence.SetVMI(instance)
		return
	}
	if s.ctx == nil {
		s.waiting[instance.UID] = instance
		return
	}
	s.startDriver(instance)
}

// VMIGone records that a VMI was deleted or that a watch no longer shows it.
func (s *Supervisor) VMIGone(by Watch, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.shown[uid], by); len(s.shown[uid]) > 0 {
		return
	}
	delete(s.shown, uid)
	delete(s.waiting, uid)
	if d, ok := s.drivers[uid]; ok {
		d.presence.SetVMI(nil)
	}
}

// PodSeen records a launcher pod or an attachment pod of this node.
func (s *Supervisor) PodSeen(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isAttachmentPod(pod) {
		s.attachmentPodChanged(pod, true)
		return
	}
	of := ownerOf(pod)
	if s.pods[of] == nil {
		s.pods[of] = map[types.UID]*corev1.Pod{}
	}
	s.pods[of][pod.UID] = pod
	s.podsChanged(of)
}

// PodGone records that such a pod was deleted.
func (s *Supervisor) PodGone(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isAttachmentPod(pod) {
		s.attachmentPodChanged(pod, false)
		return
	}
	of := ownerOf(pod)
	delete(s.pods[of], pod.UID)
	if len(s.pods[of]) == 0 {
		delete(s.pods, of)
	}
	s.podsChanged(of)
}

func isAttachmentPod(pod *corev1.Pod) bool { return pod.Labels[v1.AppLabel] == layout.AttachmentApp }

// The caller holds s.mu.
func (s *Supervisor) attachmentPodChanged(pod *corev1.Pod, exists bool) {
	of := ownerOf(pod)
	if s.attachmentPods[of] == nil {
		s.attachmentPods[of] = map[types.UID]hotplug.Pod{}
	}
	s.attachmentPods[of][pod.UID] = hotplugpod.Observe(pod)
	if !exists {
		delete(s.attachmentPods[of], pod.UID)
	}
	if d, ok := s.driverOf(of); ok {
		d.presence.SetAttachmentPods(slices.Collect(maps.Values(s.attachmentPods[of])))
	}
	if len(s.attachmentPods[of]) == 0 {
		delete(s.attachmentPods, of)
	}
}

func (s *Supervisor) podsChanged(of owner) {
	if d, ok := s.driverOf(of); ok {
		d.presence.SetPods(slices.Collect(maps.Values(s.pods[of])))
	}
}

// The caller holds s.mu.
func (s *Supervisor) driverOf(of owner) (*Driver, bool) {
	d, ok := s.drivers[of.uid]
	return d, ok && d.namespace == of.namespace
}

// The caller holds s.mu.
func (s *Supervisor) startDriver(instance *v1.VirtualMachineInstance) {
	if s.ended {
		return
	}
	d := newDriver(s.env, instance)
	of := owner{namespace: instance.Namespace, uid: instance.UID}
	d.presence.SetPods(slices.Collect(maps.Values(s.pods[of])))
	d.presence.SetAttachmentPods(slices.Collect(maps.Values(s.attachmentPods[of])))
	s.drivers[instance.UID] = d
	s.running.Go(func() {
		d.Run(s.ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.drivers, instance.UID)
		if again := d.presence.VMI(); again != nil && s.shown[instance.UID] != nil && s.ctx.Err() == nil {
			s.startDriver(again) // it was shown again while the driver ended
		}
	})
}

// WakeAll wakes all drivers after a change to the node.
func (s *Supervisor) WakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.drivers {
		d.wake()
	}
}

// Lookup returns the guest of a VMI that runs on this node.
func (s *Supervisor) Lookup(namespace, name string, uid types.UID) (*runningguest.Guest, error) {
	s.mu.Lock()
	d, ok := s.drivers[uid]
	s.mu.Unlock()
	if !ok || !d.presence.Shows(namespace, name) {
		return nil, apierrors.NewNotFound(runningguest.Resource, name)
	}
	m, err := d.runningGuest()
	if err != nil {
		return nil, apierrors.NewConflict(runningguest.Resource, name, err)
	}
	return m, nil
}

// Usage measures all running guests concurrently.
func (s *Supervisor) Usage(ctx context.Context) []metrics.Usage {
	s.mu.Lock()
	var running []*runningguest.Guest
	for _, d := range s.drivers {
		if m, err := d.runningGuest(); err == nil {
			running = append(running, m)
		}
	}
	s.mu.Unlock()
	usages := make([]metrics.Usage, len(running))
	var asking sync.WaitGroup
	for i, m := range running {
		asking.Go(func() { usages[i] = m.Usage(ctx, s.env.Now()) })
	}
	asking.Wait()
	return usages
}

// Rounds returns the number of rounds of each VMI's drivers.
func (s *Supervisor) Rounds() map[types.NamespacedName]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	rounds := map[types.NamespacedName]uint64{}
	for _, d := range s.drivers {
		rounds[types.NamespacedName{Namespace: d.namespace, Name: d.name}] += d.rounds.Load()
	}
	return rounds
}
