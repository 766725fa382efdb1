package vm

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/volumesnapshot"
	"drydock.dev/drydock/internal/rules/snapshot"
)

// classesAge is how old a list of VolumeSnapshotClasses may be that a VM's status is made of.
const classesAge = time.Minute

// snapshotClasses are the VolumeSnapshotClasses of the cluster as they were lately. They are asked for at most once
// in classesAge, and only while VMs with claims have their status written; there is no watch (decision 431). The zero
// value has none.
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

// volumeSnapshots says which of the VM's volumes its snapshots have, by what is in the cache of their claims. It is no
// reason to write a status: it goes with one that is written anyway.
func (r *Reconciler) volumeSnapshots(ctx context.Context, vm *v1.VirtualMachine) ([]v1.VolumeSnapshotStatus, error) {
	if vm.Spec.Template == nil {
		return nil, nil
	}
	volumes, drivers := vm.Spec.Template.Spec.Volumes, map[string]string{}
	for _, volume := range snapshot.OnClaims(volumes) {
		claim, err := cached(ctx, r.Client, vm.Namespace, volume[1], &corev1.PersistentVolumeClaim{})
		if err != nil {
			return nil, err
		}
		if claim == nil {
			continue
		}
		drivers[claim.Name] = ""
		if name := claim.Spec.StorageClassName; name != nil {
			class, err := cached(ctx, r.Client, "", *name, &storagev1.StorageClass{})
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
