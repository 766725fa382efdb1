// Package presence tracks a VMI and its pods from this node's caches, and queries the API server for those that the
// caches lack.
//
// A cache selects objects by labels, which users can remove. So only the API server's answer may end a guest for the lack
// of its VMI or pod (decision 211). The package must not act on its facts, and must not know QEMU.
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

	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/pod/podresize"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Cluster is the used part of the API server. It is uncached.
type Cluster interface {
	VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
	// Pod returns nil without an error if there is no such pod.
	Pod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error)
}

// Env has a Presence's dependencies.
type Env struct {
	Node    string
	Pods    string // the kubelet's folder
	Cluster Cluster
	Wake    func()
	Now     func() time.Time
	Log     logr.Logger
}

// Presence is one VMI with its pods. It is safe for concurrent use, but one goroutine calls QueryMissing.
type Presence struct {
	env Env
	uid types.UID

	mu sync.Mutex
	// vmi is the newest known version, nil when it is no longer this node's.
	vmi            *v1.VirtualMachineInstance
	absent         absent
	nodeAnswers    bool          // of a VMI that says NodeLost, according to the API server's pod
	pods           []*corev1.Pod // in the VMI's namespace, with the labels of its launcher pods
	attachmentPods []hotplug.Pod // on this node
}

// New returns the Presence of a cached VMI.
func New(env Env, first *v1.VirtualMachineInstance) *Presence {
	return &Presence{env: env, uid: first.UID, vmi: first}
}

// Facts are the known state.
type Facts struct {
	// VMI is nil when it is no longer this node's. Do not modify it.
	VMI            *v1.VirtualMachineInstance
	Deserted       bool            // the API server has no such VMI
	Pod            *vmihandler.Pod // the launcher pod; nil when the node has none
	AttachmentPods []hotplug.Pod
}

// Observe returns the current facts.
func (p *Presence) Observe() Facts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Facts{VMI: p.vmi, Deserted: p.absent.deserted, Pod: p.pod(), AttachmentPods: p.attachmentPods}
}

// VMI returns the newest known version, nil when it is no longer this node's.
func (p *Presence) VMI() *v1.VirtualMachineInstance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.vmi
}

// Networks are a launcher pod's secondary networks.
type Networks struct {
	Attached nichotplug.Attached
	Version  string // changes with each write of the pod
}

// Networks returns the launcher pod's secondary networks.
func (p *Presence) Networks() Networks {
	pod := p.launcherPod()
	if pod == nil {
		return Networks{}
	}
	return Networks{Attached: nichotplug.InPod(pod), Version: string(pod.UID) + " " + pod.ResourceVersion}
}

// Devices returns the node's devices that the pod's annotations name for its interfaces.
func (p *Presence) Devices() nichotplug.Devices {
	if pod := p.launcherPod(); pod != nil {
		return nichotplug.ReadDevices(pod)
	}
	return nil
}

// PodTimes returns when the launcher pod was created, and when it was bound to the node, in whole seconds; zero if that is
// not known.
func (p *Presence) PodTimes() (created, scheduled time.Time) {
	pod := p.launcherPod()
	if pod == nil {
		return created, scheduled
	}
	if c := podstatus.Condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue {
		scheduled = c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time, scheduled
}

func (p *Presence) launcherPod() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return launcherPod(p.vmi, p.pods)
}

// Shows reports whether a cache has the VMI under that name.
func (p *Presence) Shows(namespace, name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.vmi != nil && !p.absent.vmi && p.vmi.Namespace == namespace && p.vmi.Name == name
}

// Pods returns the pods in the VMI's namespace with the labels of its launcher pods.
func (p *Presence) Pods() []*corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pods
}

// SetVMI stores the cache's version of the VMI unless a newer one is known; nil if the cache lacks it.
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

// SetStored stores the API server's answer, nil for not found. The cache may be newer, also in lacking the VMI.
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

// SetPods stores the launcher pods.
func (p *Presence) SetPods(seen []*corev1.Pod) {
	p.mu.Lock()
	p.pods = seen
	p.mu.Unlock()
	p.env.Wake()
}

// SetAttachmentPods stores the attachment pods.
func (p *Presence) SetAttachmentPods(seen []hotplug.Pod) {
	p.mu.Lock()
	p.attachmentPods = seen
	p.mu.Unlock()
	p.env.Wake()
}

// launcherPod returns the pod that virt-controller chose to run the guest, nil if the node has none. Its label proves
// nothing: anyone can write it.
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

// The caller holds p.mu.
func (p *Presence) pod() *vmihandler.Pod {
	if shown := launcherPod(p.vmi, p.pods); shown != nil || p.vmi == nil || p.absent.pod == "" {
		pod := podOf(shown)
		if pod != nil && isInDoubt(p.vmi, shown) && !p.nodeAnswers {
			pod.Interrupted = true
		}
		return pod
	}
	_, err := os.Lstat(filepath.Join(p.env.Pods, string(p.absent.pod)))
	return &vmihandler.Pod{
		UID: p.absent.pod, Gone: true, Remains: !os.IsNotExist(err), Disruption: vmistatus.Disruption{Reason: vmistatus.ReasonPodEnded},
	}
}

func podOf(pod *corev1.Pod) *vmihandler.Pod {
	if pod == nil {
		return nil
	}
	p := &vmihandler.Pod{
		UID:      pod.UID,
		Finished: podstatus.Terminal(pod), Ended: vmistatus.LauncherEnded(pod), Resources: podresize.Actual(pod),
	}
	if ready := podstatus.Condition(pod, corev1.PodReady); ready != nil {
		p.Ready = ready.Status == corev1.ConditionTrue
	}
	p.Terminating, p.Disruption = pod.DeletionTimestamp != nil, vmistatus.DisruptionOf(pod)
	p.Interrupted = p.Terminating || vmicontroller.MarksNodeLost(pod)
	return p
}
