// Package presence knows a VMI and its pods as this node's caches show them, and asks the API
// server about those that they do not show.
//
// A cache shows this node's objects by labels, which may be taken away: that a guest is to
// end for the want of its VMI or pod, only the API server says (decision 211). The package
// must not act on any of it, and knows nothing of QEMU.
//
// Observe gives what is known as values; whether to ask, and whom, is decided in decide.go.
package presence

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/guestlifecycle"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/nichotplug"
	"drydock.dev/drydock/internal/rules/podresize"
	"drydock.dev/drydock/internal/rules/podstatus"
	"drydock.dev/drydock/internal/rules/vmilifecycle"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// Cluster is the API server as far as it is needed here.
type Cluster interface {
	// VMI reads the VMI as it is now, not from a cache.
	VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
	// PodExists asks for the very pod, not from a cache.
	PodExists(ctx context.Context, namespace, name string, uid types.UID) (bool, error)
}

// Env is what a Presence needs of its surroundings.
type Env struct {
	Node string
	// Pods is the kubelet's folder of pods.
	Pods    string
	Cluster Cluster
	// Wake is called when there is something to look at.
	Wake func()
	Now  func() time.Time
	Log  logr.Logger
}

// Presence is one VMI with its pods. Its methods may be called from several goroutines, Ask
// from one.
type Presence struct {
	env Env
	uid types.UID

	mu sync.Mutex
	// vmi is the newest that is known, nil when it is not this node's any more.
	vmi    *v1.VirtualMachineInstance
	absent absent
	// pods are those in the VMI's namespace that say they are its launcher's,
	// attachmentPods the VMI's on this node.
	pods           []*corev1.Pod
	attachmentPods []hotplug.Pod
}

// New gives the Presence of a VMI that a cache shows.
func New(env Env, first *v1.VirtualMachineInstance) *Presence {
	return &Presence{env: env, uid: first.UID, vmi: first}
}

// Facts are what is known.
type Facts struct {
	// VMI is the newest that is known, nil when it is not this node's any more. It must not
	// be changed.
	VMI *v1.VirtualMachineInstance
	// Deserted means that the VMI does not exist any more, as the API server has said.
	Deserted bool
	// Pod is the launcher pod; nil when the node has none.
	Pod *guestlifecycle.Pod
	// AttachmentPods are the VMI's on this node.
	AttachmentPods []hotplug.Pod
}

// Observe gives what is known now.
func (p *Presence) Observe() Facts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Facts{VMI: p.vmi, Deserted: p.absent.deserted, Pod: p.pod(), AttachmentPods: p.attachmentPods}
}

// VMI is the newest VMI that is known; nil when it is not this node's any more.
func (p *Presence) VMI() *v1.VirtualMachineInstance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.vmi
}

// Networks are what is known of a launcher pod's interfaces on networks beside the pods'.
type Networks struct {
	// Attached are those that it is said to have, and asked for.
	Attached nichotplug.Attached
	// Version changes whenever the pod is written.
	Version string
}

// Networks are those of the VMI's launcher pod.
func (p *Presence) Networks() Networks {
	pod := p.launcherPod()
	if pod == nil {
		return Networks{}
	}
	return Networks{Attached: nichotplug.InPod(pod), Version: string(pod.UID) + " " + pod.ResourceVersion}
}

// Devices are the devices of the node that the interfaces of the VMI's launcher pod are said to be.
func (p *Presence) Devices() nichotplug.Devices {
	if pod := p.launcherPod(); pod != nil {
		return nichotplug.ReadDevices(pod)
	}
	return nil
}

func (p *Presence) launcherPod() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return launcherPod(p.vmi, p.pods)
}

// Shows reports whether the VMI has that name, and a cache shows it.
func (p *Presence) Shows(namespace, name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.vmi != nil && !p.absent.vmi && p.vmi.Namespace == namespace && p.vmi.Name == name
}

// Pods are the pods in the VMI's namespace that say they are its launcher's.
func (p *Presence) Pods() []*corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pods
}

// SetVMI takes over what the cache shows of the VMI; nil when it is not shown any
// more. What is older than what is known is passed over.
func (p *Presence) SetVMI(seen *v1.VirtualMachineInstance) {
	p.mu.Lock()
	p.absent.vmi = seen == nil
	p.absent.former = p.absent.former && seen == nil
	if seen != nil && (p.vmi == nil || !older(seen, p.vmi)) {
		p.vmi = seen
	}
	p.mu.Unlock()
	p.env.Wake()
}

// SetStored takes over the VMI as the API server has answered; nil when it has
// none. The answer may be older than what the cache has shown meanwhile, also that
// the VMI is gone.
func (p *Presence) SetStored(stored *v1.VirtualMachineInstance) {
	p.mu.Lock()
	switch {
	case stored == nil || stored.UID != p.uid: // another VMI of the same name
		p.absent.vmi = true
	case p.vmi != nil && !older(stored, p.vmi):
		p.vmi = stored
	}
	p.mu.Unlock()
	p.env.Wake()
}

func older(a, b *v1.VirtualMachineInstance) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// SetPods takes over what was seen of the launcher pods.
func (p *Presence) SetPods(seen []*corev1.Pod) {
	p.mu.Lock()
	p.pods = seen
	p.mu.Unlock()
	p.env.Wake()
}

// SetAttachmentPods takes over what was seen of the attachment pods.
func (p *Presence) SetAttachmentPods(seen []hotplug.Pod) {
	p.mu.Lock()
	p.attachmentPods = seen
	p.mu.Unlock()
	p.env.Wake()
}

// launcherPod is the pod that virt-controller has chosen to run the guest; nil
// while the node has none. A label is anybody's to write, and a pod that only
// bears the VMI's must not come between virt-handler and the guest.
func launcherPod(instance *v1.VirtualMachineInstance, pods []*corev1.Pod) *corev1.Pod {
	if instance == nil {
		return nil
	}
	for _, pod := range pods {
		if _, chosen := instance.Status.ActivePods[pod.UID]; chosen && pod.Namespace == instance.Namespace {
			return pod
		}
	}
	return nil
}

// pod is what is known of the launcher pod. The caller holds p.mu.
func (p *Presence) pod() *guestlifecycle.Pod {
	if shown := launcherPod(p.vmi, p.pods); shown != nil || p.vmi == nil || p.absent.pod == "" {
		return podOf(shown)
	}
	_, err := os.Lstat(filepath.Join(p.env.Pods, string(p.absent.pod)))
	return &guestlifecycle.Pod{
		UID: p.absent.pod, Gone: true, Remains: !os.IsNotExist(err), Disruption: vmistatus.Disruption{Reason: vmistatus.ReasonPodEnded},
	}
}

func podOf(pod *corev1.Pod) *guestlifecycle.Pod {
	if pod == nil {
		return nil
	}
	p := &guestlifecycle.Pod{
		UID:      pod.UID,
		Finished: podstatus.Terminal(pod), Resources: podresize.Actual(pod),
	}
	if ready := podstatus.Condition(pod, corev1.PodReady); ready != nil {
		p.Ready = ready.Status == corev1.ConditionTrue
	}
	p.Terminating, p.Disruption = pod.DeletionTimestamp != nil, vmistatus.DisruptionOf(pod)
	p.Interrupted = p.Terminating || vmilifecycle.MarksNodeLost(pod)
	return p
}
