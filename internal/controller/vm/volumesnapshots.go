package vm

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/controller/volumesnapshot"
	"drydock.dev/drydock/internal/rules/snapshot"
)

// classesAge bounds the age of the list of VolumeSnapshotClasses from which a VM's status is computed.
const classesAge = time.Minute

// snapshotClasses caches the cluster's VolumeSnapshotClasses: there is no watch. The zero value is empty.
type snapshotClasses struct {
	mu    sync.Mutex
	asked time.Time
	known []snapshot.Class
}

func (c *snapshotClasses) list(ctx context.Context, reader client.Reader, now time.Time) ([]snapshot.Class, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asked.IsZero() && now.Sub(c.asked) < classesAge {
		return c.known, nil
	}
	known, _, err := volumesnapshot.Classes(ctx, reader)
	if err != nil {
		return nil, err
	}
	c.asked, c.known = now, known
	return known, nil
}

// volumeSnapshots returns which of the VM's volumes its snapshots can include.
func (r *Reconciler) volumeSnapshots(ctx context.Context, vm *v1.VirtualMachine) ([]v1.VolumeSnapshotStatus, error) {
	if vm.Spec.Template == nil {
		return nil, nil
	}
	volumes, drivers := vm.Spec.Template.Spec.Volumes, map[string]string{}
	for _, volume := range snapshot.OnClaims(volumes) {
		claim, err := versioned.Read[corev1.PersistentVolumeClaim](ctx, r.Client, "the claim", types.NamespacedName{Namespace: vm.Namespace, Name: volume[1]})
		if err != nil {
			return nil, err
		}
		if claim == nil {
			continue
		}
		drivers[claim.Name] = ""
		if name := claim.Spec.StorageClassName; name != nil {
			class, err := versioned.Read[storagev1.StorageClass](ctx, r.Client, "the storage class", types.NamespacedName{Name: *name})
			if err != nil {
				return nil, err
			}
			if class != nil {
				drivers[claim.Name] = class.Provisioner
			}
		}
	}
	if len(drivers) == 0 {
		return snapshot.Statuses(volumes, nil, nil), nil
	}
	classes, err := r.classes.list(ctx, r.Reader, r.Now())
	if err != nil {
		return nil, err
	}
	return snapshot.Statuses(volumes, drivers, classes), nil
}
