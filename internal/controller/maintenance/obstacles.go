package maintenance

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/controller/rivals"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/rules/maintenance"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

// askForObstacles asks the API server for everything that may be in the pod's way, concurrently, since a pod waits for it.
// The order does not matter: a running guest is found by its pod, and any other guest sees the lock.
func (r *Reconciler) askForObstacles(ctx context.Context, m lock.Machine, pod *corev1.Pod) (*maintenance.Look, error) {
	out, claims := &maintenance.Look{}, maintenance.Claims(m, pod)
	asking, ctx := errgroup.WithContext(ctx)
	asking.Go(func() (err error) {
		name := client.ObjectKeyFromObject(m)
		if _, is := m.(*v1.VirtualMachineInstance); is {
			out.VM, err = versioned.Read[v1.VirtualMachine](ctx, r.Reader, "VM", name)
		} else {
			out.VMI, err = versioned.Read[v1.VirtualMachineInstance](ctx, r.Reader, "VMI", name)
		}
		return err
	})
	asking.Go(func() (err error) {
		out.Rivals, err = r.rivals(ctx, m, claims)
		return err
	})
	asking.Go(func() (err error) {
		out.Users, err = r.users(ctx, m.GetNamespace(), claims)
		return err
	})
	asking.Go(func() (err error) {
		out.DataVolumes, err = r.dataVolumes(ctx, m.GetNamespace(), claims)
		return err
	})
	asking.Go(func() (err error) {
		out.Filling, err = r.filling(ctx, m.GetNamespace(), claims)
		return err
	})
	if err := asking.Wait(); err != nil {
		return nil, err
	}
	return out, nil
}

func (r *Reconciler) dataVolumes(ctx context.Context, namespace string, claims []string) ([]*cdiv1.DataVolume, error) {
	var out []*cdiv1.DataVolume
	for _, claim := range claims {
		dv, err := versioned.Read[cdiv1.DataVolume](ctx, r.Reader, "DataVolume", types.NamespacedName{Namespace: namespace, Name: claim})
		if err != nil {
			return nil, err
		}
		if dv != nil {
			out = append(out, dv)
		}
	}
	return out, nil
}

// filling says why the first unfilled claim is not filled yet, "" if all are.
func (r *Reconciler) filling(ctx context.Context, namespace string, claims []string) (string, error) {
	for _, claim := range claims {
		filling, err := claimusers.Filling(ctx, r.Reader, types.NamespacedName{Namespace: namespace, Name: claim})
		if err != nil || filling != "" {
			return filling, err
		}
	}
	return "", nil
}

// rivals returns the guests and the other maintenance pods that must not run beside a pod with the disks.
func (r *Reconciler) rivals(ctx context.Context, m lock.Machine, claims []string) ([]vmicontroller.Rival, error) {
	return rivals.Ask(ctx, r.Reader, r.Client, rivals.Question{
		Namespace: m.GetNamespace(), Name: m.GetName(), SameName: true, Claims: claims, Maintenance: true,
		Judge: func(pod *corev1.Pod) (vmicontroller.Rival, bool) {
			return vmicontroller.GuestOn(m.GetName(), claims, pod)
		},
	})
}

// others selects Drydock's pods that use claims and run no guest.
func others() (labels.Selector, error) {
	others, err := labels.NewRequirement(v1.AppLabel, selection.In, []string{layout.AttachmentApp, datavolume.WorkerAppLabel})
	if err != nil {
		return nil, fmt.Errorf("selecting pods by what they are: %w", err)
	}
	return labels.NewSelector().Add(*others), nil
}

func (r *Reconciler) users(ctx context.Context, namespace string, claims []string) ([]*corev1.Pod, error) {
	selector, err := others()
	if err != nil {
		return nil, err
	}
	pods, err := pagedlist.Pods(ctx, r.Reader, claims, func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(lock.Claims(pod), func(c string) bool { return slices.Contains(claims, c) })
	}, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return nil, fmt.Errorf("asking for the pods that use claims of %s: %w", namespace, err)
	}
	var out []*corev1.Pod
	for i := range pods {
		out = append(out, &pods[i])
	}
	return out, nil
}

// plugged returns another VMI's guest into which one of the claims is plugged, by the cache or else the API server.
func (r *Reconciler) plugged(ctx context.Context, m lock.Machine, claims []string) (maintenance.Plugged, error) {
	for _, claim := range claims {
		key := &corev1.PersistentVolumeClaim{}
		key.Namespace, key.Name = m.GetNamespace(), claim
		users, err := claimusers.List(ctx, r.Client, key)
		if err != nil {
			return maintenance.Plugged{}, err
		}
		if in := maintenance.PluggedInto(m, claims, users); in.VMI != "" {
			return in, nil
		}
	}
	into, err := pagedlist.Collect(ctx, r.Reader, &v1.VirtualMachineInstanceList{}, func(vmi *v1.VirtualMachineInstance) (maintenance.Plugged, bool) {
		in := maintenance.PluggedInto(m, claims, []v1.VirtualMachineInstance{*vmi})
		return in, in.VMI != ""
	}, client.InNamespace(m.GetNamespace()))
	switch {
	case err != nil:
		return maintenance.Plugged{}, fmt.Errorf("asking for the guests that disks of %s/%s are plugged into: %w", m.GetNamespace(), m.GetName(), err)
	case len(into) == 0:
		return maintenance.Plugged{}, nil
	}
	return into[0], nil
}
