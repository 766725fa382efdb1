package driver

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// apiTimeout bounds each call of a driver to the API server. Meanwhile the driver acts on no request of a user and ends
// no guest, so the timeout is not above that of QEMU's answers (concern.CommandTimeout). A slow API server answers within
// it; a silently broken connection takes longer to notice.
const apiTimeout = 10 * time.Second

type boundedCluster struct{ Cluster }

func bounded[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return call(ctx)
}

func (b boundedCluster) VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error) {
	return bounded(ctx, func(ctx context.Context) (*v1.VirtualMachineInstance, error) {
		return b.Cluster.VMI(ctx, namespace, name)
	})
}

func (b boundedCluster) PatchVMI(ctx context.Context, vmi *v1.VirtualMachineInstance, patch []byte) (*v1.VirtualMachineInstance, error) {
	return bounded(ctx, func(ctx context.Context) (*v1.VirtualMachineInstance, error) {
		return b.Cluster.PatchVMI(ctx, vmi, patch)
	})
}

func (b boundedCluster) Pod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	return bounded(ctx, func(ctx context.Context) (*corev1.Pod, error) { return b.Cluster.Pod(ctx, namespace, name, uid) })
}

func (b boundedCluster) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return bounded(ctx, func(ctx context.Context) (*corev1.PersistentVolumeClaim, error) {
		return b.Cluster.Claim(ctx, namespace, name)
	})
}

func (b boundedCluster) PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return bounded(ctx, func(ctx context.Context) (*corev1.PersistentVolume, error) {
		return b.Cluster.PersistentVolume(ctx, name)
	})
}
