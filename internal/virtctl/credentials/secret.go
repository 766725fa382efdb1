package credentials

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	v1 "kubevirt.io/api/core/v1"
)

// change edits a Secret, and again after a conflict. Without --force it must be the machine's own.
func (m *machine) change(ctx context.Context, name string, edit func(data map[string][]byte) bool) (changed bool, err error) {
	secrets := m.c.Core().Secrets(m.vm.Namespace)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading Secret %s: %w", name, err)
		}
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		changed = edit(secret.Data)
		switch {
		case !changed:
			return nil
		case !m.force && !isOwned(secret, m.vm):
			return fmt.Errorf("the Secret %s is not the machine's own, and others may have it, too: change it all the same with --force", name)
		}
		if _, err := secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("changing Secret %s: %w", name, err)
		}
		return nil
	})
	return changed, err
}

func isOwned(secret *corev1.Secret, vm *v1.VirtualMachine) bool {
	for _, owner := range secret.OwnerReferences {
		if owner.UID == vm.UID && owner.Kind == v1.VirtualMachineGroupVersionKind.Kind && owner.Name == vm.Name {
			return true
		}
	}
	return false
}
