package vm

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A VM that lets go of a revision deletes it only if no other VM holds it, even if the other VM has begun to after the
// revision was read.
func TestARevisionThatAnotherVMTakesStays(t *testing.T) {
	vm, other := always(), always()
	other.Name, other.UID = "other", "other-uid"
	key := client.ObjectKey{Namespace: "ns", Name: "revision"}
	for name, taken := range map[string]bool{"nobody takes it": false, "another VM takes it": true} {
		t.Run(name, func(t *testing.T) {
			api := store(t, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace, Name: key.Name, UID: "revision-uid", OwnerReferences: []metav1.OwnerReference{{Name: vm.Name, UID: vm.UID}},
			}})
			read := interceptor.NewClient(api, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if err := c.Get(ctx, key, object, options...); err != nil || !taken {
						return err
					}
					held := object.DeepCopyObject().(client.Object)
					held.SetOwnerReferences(append(held.GetOwnerReferences(), metav1.OwnerReference{Name: other.Name, UID: other.UID}))
					return c.Update(ctx, held)
				},
			})
			err := (&Reconciler{Client: api, Reader: read}).dropRevision(t.Context(), vm, key.Name)
			if (err != nil) != taken {
				t.Errorf("the answer is %v", err)
			}
			err = api.Get(t.Context(), key, &appsv1.ControllerRevision{})
			if client.IgnoreNotFound(err) != nil || (err == nil) != taken {
				t.Errorf("the revision stays: %v, want %v", err == nil, taken)
			}
		})
	}
}
