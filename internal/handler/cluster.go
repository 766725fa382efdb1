package handler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type cluster struct {
	// reader is uncached.
	reader   client.Reader
	writer   client.Writer
	recorder events.EventRecorder
}

func (c *cluster) PatchVMI(ctx context.Context, vmi *v1.VirtualMachineInstance, patch []byte) (*v1.VirtualMachineInstance, error) {
	patched := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: vmi.Name}}
	if err := c.writer.Patch(ctx, patched, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return nil, err
	}
	return patched, nil
}

func (c *cluster) VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error) {
	vmi := &v1.VirtualMachineInstance{}
	if err := c.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, vmi); err != nil {
		return nil, err
	}
	return vmi, nil
}

func (c *cluster) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := c.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, claim); err != nil {
		return nil, err
	}
	return claim, nil
}

func (c *cluster) Pod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	switch err := c.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod); {
	case apierrors.IsNotFound(err), err == nil && pod.UID != uid:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return pod, nil
}

func (c *cluster) PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	volume := &corev1.PersistentVolume{}
	if err := c.reader.Get(ctx, client.ObjectKey{Name: name}, volume); err != nil {
		return nil, err
	}
	return volume, nil
}

func (c *cluster) Event(vmi *v1.VirtualMachineInstance, eventType, reason, message string) {
	c.recorder.Eventf(vmi, relatedTo(vmi, reason), eventType, reason, reason, "%s", message)
}

// relatedTo returns the migration that the event is about, or nil. Kubernetes merges events with the same reason and
// object within some minutes; the related object keeps two migrations apart.
func relatedTo(vmi *v1.VirtualMachineInstance, reason string) runtime.Object {
	m := vmi.Status.MigrationState
	if m == nil || reason != v1.Migrated.String() {
		return nil
	}
	kind := v1.VirtualMachineInstanceMigrationGroupVersionKind
	return &corev1.ObjectReference{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: vmi.Namespace, UID: m.MigrationUID}
}
