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
	"drydock.dev/drydock/internal/logs"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// The VMI is enqueued whoever owns the pod, and with the pod's end the VMIs that may have waited for that.
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

// enqueueWaiting enqueues the VMIs that use a claim of the pod and have no node yet.
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

// endedPods remembers each VMI's launcher pods that had ended before they were deleted: a VMI need not wait for
// those. The zero value is empty. It is safe for concurrent use.
type endedPods struct {
	mu   sync.Mutex
	pods map[types.NamespacedName][]*corev1.Pod
}

// rememberedPods is how many pods of a VMI are remembered: as many as it has at a time, and one more.
const rememberedPods = 3

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

// of returns the last state of the VMI's pod of a name, nil if it is not known to have ended.
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

// missedPods remembers since when a VMI's other launcher pod is known to be gone. The zero value is empty. It is safe
// for concurrent use.
type missedPods struct {
	mu   sync.Mutex
	pods map[types.NamespacedName]missedPod
}

type missedPod struct {
	name  string
	since time.Time
}

// since returns when the pod was found to be gone, zero if it exists.
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

// askForRivals asks the API server for guests and maintenance pods beside which the guest must not run, and for the
// fillers of its claims.
func (r *Reconciler) askForRivals(ctx context.Context, o *vmicontroller.Observed) error {
	found, err := rivals.Ask(ctx, r.Reader, r.Client, rivals.Question{
		Namespace: o.VMI.Namespace, Name: o.VMI.Name, SameName: true, Claims: launcherpod.ExclusiveClaims(o.VMI),
		Judge: func(pod *corev1.Pod) (vmicontroller.Rival, bool) { return vmicontroller.RivalOf(o.VMI, pod) },
	})
	if err != nil {
		return err
	}
	o.Rivals, o.RivalsAsked = found, true
	for _, claim := range launcherpod.StartClaims(o.VMI) {
		filling, err := claimusers.Filling(ctx, r.Reader, types.NamespacedName{Namespace: o.VMI.Namespace, Name: claim})
		if err != nil {
			return err
		}
		if filling != "" {
			o.Rivals = append(o.Rivals, vmicontroller.Rival{Claim: claim, Filling: filling})
		}
	}
	return nil
}

func (r *Reconciler) storedNode(ctx context.Context, name string) (*corev1.Node, error) {
	return versioned.Read[corev1.Node](ctx, r.Reader, "node", types.NamespacedName{Name: name})
}

// sweep deletes the launcher pods of deleted VMIs of a name. instance is the UID of the cached VMI: a reason to read the
// VMI from the API server, after the pods.
func (r *Reconciler) sweep(ctx context.Context, key types.NamespacedName, instance types.UID) error {
	pods, err := rivals.Named(ctx, r.Client, key)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return vmicontroller.Abandoned(pod, instance) }) {
		return nil
	}
	vmi := &v1.VirtualMachineInstance{}
	if _, err := versioned.Find(ctx, r.Reader, "VMI", key, vmi); err != nil {
		return err
	}
	for _, pod := range pods {
		// Without a VMI, its UID is empty.
		if !vmicontroller.Abandoned(pod, vmi.UID) {
			continue
		}
		log := logs.VMINamed(ctrl.LoggerFrom(ctx), key.Namespace, key.Name, launcherpod.MadeFor(pod))
		log.Info("deleting a launcher pod whose VMI is gone", "pod", pod.Name)
		if _, err := deletion.Exact(ctx, r.Client, pod, "the abandoned launcher pod"); err != nil {
			return err
		}
	}
	return nil
}
