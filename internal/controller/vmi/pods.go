package vmi

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/rivals"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/podstatus"
	"drydock.dev/drydock/internal/rules/vmilifecycle"
)

// queue is where the loop takes its work from.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// podEvents wakes the loop for the VMI of a pod, whoever owns the pod; and, when
// the pod can't hold a guest any more, for the VMIs that may have waited for that.
func (r *Reconciler) podEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueueOwn(e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			enqueueOwn(e.ObjectNew, q)
			before, after, ok := launchers(e.ObjectOld, e.ObjectNew)
			if ok && !podstatus.Terminal(before) && podstatus.Terminal(after) {
				r.enqueueWaiting(ctx, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if pod, _, ok := launchers(e.Object, e.Object); ok {
				r.ended.note(pod)
				r.enqueueWaiting(ctx, pod, q)
			}
			enqueueOwn(e.Object, q)
		},
	}
}

func launchers(before, after client.Object) (*corev1.Pod, *corev1.Pod, bool) {
	was, ok := before.(*corev1.Pod)
	is, too := after.(*corev1.Pod)
	return was, is, ok && too && launcherpod.IsLauncher(is)
}

func enqueueOwn(pod client.Object, q queue) {
	if name := launcherpod.VMIOf(pod); name != "" {
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}})
	}
}

// enqueueWaiting wakes the loop for the VMIs that write to a claim of the pod's
// and have no node yet. One of the same name is woken as the pod's own.
func (r *Reconciler) enqueueWaiting(ctx context.Context, pod *corev1.Pod, q queue) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		claim.Namespace, claim.Name = pod.Namespace, v.PersistentVolumeClaim.ClaimName
		for _, request := range r.usersOfClaim(ctx, claim) {
			q.Add(request)
		}
	}
}

// endedPods remembers, for each VMI, the launcher pods that were gone after their
// processes had ended. It spares a VMI the wait that a pod which was deleted by
// force asks for; a process that has forgotten only waits longer. The zero value
// is empty; it is safe for concurrent use.
type endedPods struct {
	mu   sync.Mutex
	pods map[types.NamespacedName][]*corev1.Pod
}

// rememberedPods is how many ended pods of a VMI are remembered: as many as it has at a
// time, and the one before.
const rememberedPods = 3

// note remembers a pod as it was when it went.
func (e *endedPods) note(pod *corev1.Pod) {
	if !podstatus.Terminal(pod) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pods == nil {
		e.pods = map[types.NamespacedName][]*corev1.Pod{}
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: launcherpod.VMIOf(pod)}
	list := append(e.pods[key], pod)
	e.pods[key] = list[max(0, len(list)-rememberedPods):]
}

// of is the VMI's pod of a name, as it was when it went; nil when it is not known to have
// ended.
func (e *endedPods) of(vmi *v1.VirtualMachineInstance, name string) *corev1.Pod {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, pod := range e.pods[client.ObjectKeyFromObject(vmi)] {
		if pod.Name == name && launcherpod.BondOf(pod, vmi) == launcherpod.Chosen {
			return pod
		}
	}
	return nil
}

func (e *endedPods) forget(vmi types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pods, vmi)
}

// missedPods remembers, for each VMI, since when its other launcher pod is known to be
// gone. A process that has forgotten waits once more. The zero value is empty; it is safe
// for concurrent use.
type missedPods struct {
	mu   sync.Mutex
	pods map[types.NamespacedName]missedPod
}

type missedPod struct {
	name  string
	since time.Time
}

// since is when the pod was found to be gone, now if that was not known; the zero time if
// it is there.
func (m *missedPods) since(vmi types.NamespacedName, pod string, gone bool, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !gone {
		delete(m.pods, vmi)
		return time.Time{}
	}
	if known := m.pods[vmi]; known.name == pod {
		return known.since
	}
	if m.pods == nil {
		m.pods = map[types.NamespacedName]missedPod{}
	}
	m.pods[vmi] = missedPod{pod, now}
	return now
}

func (m *missedPods) forget(vmi types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, vmi)
}

// askForRivals asks the API server for the guests and the maintenance pods beside which the
// VMI's guest must not run, and for what fills its claims.
func (r *Reconciler) askForRivals(ctx context.Context, o *vmilifecycle.Observed) error {
	found, err := rivals.Ask(ctx, r.Reader, r.Client, rivals.Question{
		Namespace: o.VMI.Namespace, Name: o.VMI.Name, SameName: true, Claims: launcherpod.ExclusiveClaims(o.VMI),
		Judge: func(pod *corev1.Pod) (vmilifecycle.Rival, bool) { return vmilifecycle.RivalOf(o.VMI, pod) },
	})
	if err != nil {
		return err
	}
	o.Rivals, o.RivalsAsked = found, true
	return r.askForFillers(ctx, o)
}

// askForFillers asks the API server for what fills the VMI's claims, or is still to fill them.
func (r *Reconciler) askForFillers(ctx context.Context, o *vmilifecycle.Observed) error {
	for _, claim := range launcherpod.StartClaims(o.VMI) {
		filling, err := claimusers.Filling(ctx, r.Reader, types.NamespacedName{Namespace: o.VMI.Namespace, Name: claim})
		if err != nil {
			return err
		}
		if filling != "" {
			o.Rivals = append(o.Rivals, vmilifecycle.Rival{Claim: claim, Filling: filling})
		}
	}
	return nil
}

// askForVM asks it for the VM of the VMI's name.
func (r *Reconciler) askForVM(ctx context.Context, o *vmilifecycle.Observed) error {
	vm, err := versioned.Read[v1.VirtualMachine](ctx, r.Reader, "VM", client.ObjectKeyFromObject(o.VMI))
	if err == nil {
		o.VM, o.VMAsked = vm, true
	}
	return err
}

// askForNode asks the API server for the VMI's node.
func (r *Reconciler) askForNode(ctx context.Context, o *vmilifecycle.Observed) error {
	var err error
	if o.Node, err = r.storedNode(ctx, o.VMI.Status.NodeName); err == nil {
		o.NodeAsked = true
	}
	return err
}

// askForOtherNode asks it for the node of the VMI's other launcher pod.
func (r *Reconciler) askForOtherNode(ctx context.Context, o *vmilifecycle.Observed) error {
	var err error
	if o.OtherNode, err = r.storedNode(ctx, launcherpod.OtherNode(o.VMI)); err == nil {
		o.OtherNodeAsked = true
	}
	return err
}

func (r *Reconciler) storedNode(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	found, err := exists(ctx, r.stored, types.NamespacedName{Name: name}, node)
	if err != nil || !found {
		return nil, err
	}
	return node, nil
}

// sweep ends the launcher pods of VMIs of a name that do not exist any more, as
// far as nobody else does. instance is the UID of the VMI that the cache shows.
// What a cache shows is only a reason to ask: the VMI is the API server's word,
// and asked for after the pods were seen.
func (r *Reconciler) sweep(ctx context.Context, key types.NamespacedName, instance types.UID) error {
	pods, err := rivals.Named(ctx, r.Client, key)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return vmilifecycle.Abandoned(pod, instance) }) {
		return nil
	}
	vmi := &v1.VirtualMachineInstance{}
	if _, err := exists(ctx, r.stored, key, vmi); err != nil {
		return err
	}
	for _, pod := range pods {
		// Without a VMI, its UID is empty.
		if !vmilifecycle.Abandoned(pod, vmi.UID) {
			continue
		}
		ctrl.LoggerFrom(ctx).Info("deleting a launcher pod whose VMI is gone", "pod", pod.Name, "uid", launcherpod.MadeFor(pod))
		if _, err := deletion.Exact(ctx, r.Client, pod, "the abandoned launcher pod"); err != nil {
			return err
		}
	}
	return nil
}
