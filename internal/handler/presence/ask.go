package presence

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// QueryMissing queries the API server for objects that the caches lack. It returns the delay until the next query, 0 for
// never. With hold, the driver must do nothing before.
func (p *Presence) QueryMissing(ctx context.Context, l Launcher) (after time.Duration, hold bool) {
	p.mu.Lock()
	known := p.vmi
	pod := launcherPod(known, p.pods)
	d := decide(known, p.absent, p.env.Node, pod != nil, l, p.env.Now())
	p.absent = d.absent
	doubt := isInDoubt(known, pod)
	p.nodeAnswers = p.nodeAnswers && doubt
	doubt = doubt && !p.nodeAnswers
	if d.question == dropVMI {
		p.vmi = nil
	}
	p.mu.Unlock()
	switch d.question {
	case theVMI:
		after = p.askForVMI(ctx, known)
		return after, after > 0
	case thePod:
		return p.askForPod(ctx, known, d.pod), false
	}
	if doubt {
		return p.askForNode(ctx, known, pod), false
	}
	return d.after, false
}

// isInDoubt reports whether the VMI says that its node is lost, and the pod does not. Then the cache of pods has not
// seen the mark yet, or the node answers again.
func isInDoubt(known *v1.VirtualMachineInstance, pod *corev1.Pod) bool {
	return known != nil && pod != nil && vmistatus.SaysNodeLost(known) && !vmicontroller.MarksNodeLost(pod)
}

func (p *Presence) askForNode(ctx context.Context, known *v1.VirtualMachineInstance, pod *corev1.Pod) time.Duration {
	stored, err := p.env.Cluster.Pod(ctx, known.Namespace, pod.Name, pod.UID)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil:
		p.env.Log.Info("asking whether the node of a launcher pod answers again", "pod", pod.UID, "reason", err.Error())
	case stored != nil && !vmicontroller.MarksNodeLost(stored):
		p.nodeAnswers = true
		return 0
	}
	return askPause
}

// askForVMI records whether a VMI that the cache lacks is gone, or has left this node.
func (p *Presence) askForVMI(ctx context.Context, known *v1.VirtualMachineInstance) time.Duration {
	stored, err := p.env.Cluster.VMI(ctx, known.Namespace, known.Name)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.absent.vmi:
		return 0 // the cache has it again
	case apierrors.IsNotFound(err), err == nil && stored.UID != p.uid:
		p.env.Log.Info("the VMI does not exist any more")
		p.absent.deserted = true
	case err != nil:
		p.env.Log.Info("asking for a VMI that is not seen any more", "reason", err.Error())
		return askPause
	default:
		return p.storeUncached(stored)
	}
	return 0
}

// storeUncached stores a VMI that no cache has if a cache lags behind, or the guest has left this node before its QEMU's
// end, and drops any other. The caller holds p.mu.
func (p *Presence) storeUncached(stored *v1.VirtualMachineInstance) (after time.Duration) {
	switch {
	case stored.Labels[v1.NodeNameLabel] == p.env.Node, stored.Labels[v1.MigrationTargetNodeNameLabel] == p.env.Node:
		p.vmi, after = stored, askPause
	case vmihandler.RoleOf(stored, p.env.Node) == vmihandler.Former:
		p.vmi, p.absent.former = stored, true
	default:
		p.vmi = nil
	}
	return after
}

// On a migration's target, and on the former node, the launcher pod is not the guest's current one.
func (p *Presence) podName(known *v1.VirtualMachineInstance) string {
	if launcherpod.OtherNode(known) == p.env.Node {
		return launcherpod.OtherName(known)
	}
	return launcherpod.CurrentName(known)
}

func (p *Presence) askForPod(ctx context.Context, known *v1.VirtualMachineInstance, uid types.UID) time.Duration {
	found, err := p.env.Cluster.Pod(ctx, known.Namespace, p.podName(known), uid)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.absent.next = p.env.Now().Add(askPause)
	switch {
	case err != nil:
		p.env.Log.Info("asking for a launcher pod that is not seen", "pod", uid, "reason", err.Error())
	case found == nil:
		p.env.Log.Info("the launcher pod does not exist any more", "pod", uid)
		p.absent.pod = uid
		return 0
	}
	return askPause
}
