// Package maintenance is the loop that locks machines for maintenance pods, lets these run, and unlocks them. Package
// maintenance of the rules decides.
//
// It owns the lock on a VM or a VMI, and the gate, the finalizer, the condition and the provisioning pods of
// maintenance pods. It must not decide, and must not let a pod run because of a cache: events are a reason to ask
// the API server, and obstacles a reason to wait.
package maintenance

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/controller/maintainers"
	"drydock.dev/drydock/internal/controller/settle"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/logs"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/maintenance"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/storage/placement"
)

// Reconciler is the loop. All fields are required.
type Reconciler struct {
	// Client reads from the cache, Reader from the API server.
	Client   client.Client
	Reader   client.Reader
	Recorder events.EventRecorder
	Settings func(context.Context) (clusterconfig.Settings, error)
	Disks    Disks
	Now      func() time.Time
}

// Disks places disks as for a VMI that starts: the loop of VMIs.
type Disks interface {
	// Places asks the API server for claims and the topologies of the bound ones.
	Places(ctx context.Context, vmi *v1.VirtualMachineInstance, claims []string) ([]placement.Claim, []placement.Topology, error)
	// RenderProvisioningFor renders the provisioning pod of a maintenance pod.
	RenderProvisioningFor(ctx context.Context, vmi *v1.VirtualMachineInstance, pod *corev1.Pod, claims []string) (*corev1.Pod, error)
}

// most bounds the consecutive steps for one machine, so that others have their turn.
const most = 8

const podIndex = "drydock.maintenance-pods"

func podIndexValue(o client.Object) []string {
	if name := lock.For(o); name != "" && o.GetLabels()[v1.AppLabel] == layout.MaintenanceApp {
		return []string{name}
	}
	return nil
}

const claimIndex = "drydock.maintenance-claims"

func claimIndexValue(o client.Object) []string {
	var out []string
	if len(podIndexValue(o)) > 0 {
		for label := range o.GetLabels() {
			if strings.HasPrefix(label, layout.ClaimLabelPrefix) {
				out = append(out, label)
			}
		}
	}
	return out
}

// SetupWithManager registers the loop.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, pace controller.Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, podIndex, podIndexValue); err != nil {
		return fmt.Errorf("indexing maintenance pods by VM: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, claimIndex, claimIndexValue); err != nil {
		return fmt.Errorf("indexing maintenance pods by claim: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("maintenance").
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(target)).
		Watches(&v1.VirtualMachine{}, handler.EnqueueRequestsFromMapFunc(r.concerned)).
		Watches(&v1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.concerned)).
		// A DataVolume has the name of its claim.
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.onClaim)).
		Watches(&cdiv1.DataVolume{}, handler.EnqueueRequestsFromMapFunc(r.onClaim)).
		WithOptions(pace).
		Complete(r)
}

// target returns the machine of a maintenance pod, or of the provisioning pod of one.
func target(_ context.Context, pod client.Object) []reconcile.Request {
	var out []reconcile.Request
	names := podIndexValue(pod)
	if name := launcherpod.ProvisionedFor(pod); name != "" {
		names = append(names, name)
	}
	for _, name := range names {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}})
	}
	return out
}

// concerned returns a machine if it is locked or a maintenance pod waits for it, which is rare.
func (r *Reconciler) concerned(ctx context.Context, object client.Object) []reconcile.Request {
	key := client.ObjectKeyFromObject(object)
	if _, locked := lock.Of(object); !locked {
		var pods corev1.PodList
		err := r.Client.List(ctx, &pods, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy, client.MatchingFields{podIndex: key.Name})
		if err != nil {
			logs.Machine(ctrl.LoggerFrom(ctx), object).Error(err, "looking for the maintenance pods of a VM")
		}
		if err == nil && len(pods.Items) == 0 {
			return nil
		}
	}
	return []reconcile.Request{{NamespacedName: key}}
}

func (r *Reconciler) onClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	var pods corev1.PodList
	err := r.Client.List(ctx, &pods, client.InNamespace(claim.GetNamespace()), client.UnsafeDisableDeepCopy,
		client.MatchingFields{claimIndex: layout.ClaimLabel(claim.GetName())})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "looking for the maintenance pods on a claim", "claim", client.ObjectKeyFromObject(claim))
	}
	var out []reconcile.Request
	for i := range pods.Items {
		out = append(out, target(ctx, &pods.Items[i])...)
	}
	return out
}

// Reconcile handles one machine.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	after, err := settle.Turns(ctx, most, func(ctx context.Context) (again bool, after time.Duration, err error) {
		o := maintenance.Observed{Now: r.Now()}
		if err := r.observe(ctx, req.NamespacedName, &o); err != nil {
			return false, 0, err
		}
		plan, err := settle.Plan(ctx, func() (maintenance.Plan, maintenance.Question) {
			plan := maintenance.Decide(o)
			return plan, plan.Needs
		}, func(ctx context.Context, question maintenance.Question) error {
			return r.ask(ctx, question, req.NamespacedName, &o)
		})
		if err != nil {
			return false, 0, err
		}
		again, err = r.apply(ctx, o, plan)
		return again, plan.After, err
	})
	return ctrl.Result{RequeueAfter: after}, err
}

// observe asks the API server for the machine, and then for its maintenance pods.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName, o *maintenance.Observed) error {
	var err error
	if o.Machine, err = maintainers.Machine(ctx, r.Reader, key); err != nil {
		return err
	}
	o.Pods, err = pagedlist.Collect(ctx, r.Reader, &corev1.PodList{}, withoutPrograms, client.InNamespace(key.Namespace),
		client.MatchingLabels{v1.AppLabel: layout.MaintenanceApp, layout.MaintenanceForLabel: key.Name})
	if err != nil {
		return fmt.Errorf("asking for the maintenance pods of %s: %w", key, err)
	}
	for _, pod := range o.Pods {
		name := client.ObjectKey{Namespace: pod.Namespace, Name: launcherpod.ProvisioningNameFor(key.Name, pod.UID)}
		is, err := versioned.Read[corev1.Pod](ctx, r.Client, "the provisioning pod", name)
		if err != nil {
			return err
		}
		if is != nil && metav1.IsControlledBy(is, pod) {
			o.Provisioning = append(o.Provisioning, is)
		}
	}
	return nil
}

// withoutPrograms returns the pod without large parts that the loop neither reads nor writes.
func withoutPrograms(pod *corev1.Pod) (*corev1.Pod, bool) {
	out := pod.DeepCopy()
	out.ManagedFields = nil
	for _, containers := range [][]corev1.Container{out.Spec.InitContainers, out.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			c.Env, c.EnvFrom, c.Command, c.Args = nil, nil, nil, nil
		}
	}
	return out, true
}

func (r *Reconciler) ask(ctx context.Context, question maintenance.Question, key types.NamespacedName, o *maintenance.Observed) (err error) {
	switch question {
	case maintenance.NeedHolder:
		l, _ := lock.Of(o.Machine)
		o.Holder, err = versioned.Read[corev1.Pod](ctx, r.Reader, "pod", types.NamespacedName{Namespace: key.Namespace, Name: l.Pod})
		o.HolderAsked = true
	case maintenance.NeedLook:
		o.Look, err = r.askForObstacles(ctx, o.Machine, next(o))
	case maintenance.NeedPlugged:
		o.Look.Plugged, err = r.plugged(ctx, o.Machine, maintenance.Claims(o.Machine, next(o)))
		o.Look.PluggedAsked = true
	case maintenance.NeedPlaces:
		o.Look.Places, o.Look.Topologies, err = r.Disks.Places(ctx, maintenance.Instance(o.Machine), maintenance.Claims(o.Machine, next(o)))
		o.Look.PlacesAsked = true
	case maintenance.NeedLater:
		o.Later, err = maintainers.Machine(ctx, r.Reader, key)
		o.LaterAsked = true
	default:
		err = fmt.Errorf("nobody can ask for %s", question)
	}
	return err
}

// next returns the pod whose obstacles are looked up.
func next(o *maintenance.Observed) *corev1.Pod {
	if o.Holder != nil {
		return o.Holder
	}
	return maintenance.Next(o.Pods)
}
