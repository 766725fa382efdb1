package kubevirt

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"drydock.dev/drydock/internal/controller/cdi"
	"drydock.dev/drydock/internal/rules/components"
)

// monitorAgain is when what was refused for Prometheus is tried again: nothing tells that a namespace has come into being.
const monitorAgain = 5 * time.Minute

// monitors is what was found out about Prometheus's operator.
type monitors struct {
	// nothing means that the operator's definition is not there, and nothing that was made for it is.
	nothing bool
	// refused says why Prometheus can't be told.
	refused string
}

func monitoringDefinition() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(definition client.Object) bool {
		return definition.GetName() == components.ServiceMonitorDefinition
	})
}

// monitor has Prometheus's operator told of Drydock's metrics, as the KubeVirt object says, which may be nil. Where there
// is no such operator, nothing is asked or written.
func (r *Reconciler) monitor(ctx context.Context, kv *v1.KubeVirt) error {
	err := r.Client.Get(ctx, client.ObjectKey{Name: components.ServiceMonitorDefinition}, cdi.Definition())
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("looking for the definition %s: %w", components.ServiceMonitorDefinition, err)
	}
	there := err == nil
	if !there && r.monitors.nothing {
		return nil
	}
	r.monitors = monitors{}
	var account *types.NamespacedName
	asked := components.MonitoringOf(kv)
	if there {
		if account, err = r.monitorAccount(ctx, asked); err != nil {
			return err
		}
	}
	namespace := ""
	if account != nil {
		namespace = asked.Namespace(*account)
	}
	if there {
		if err := r.retireMonitors(ctx, namespace); err != nil {
			return err
		}
	}
	if account == nil {
		err := r.retireBinding(ctx)
		r.monitors.nothing = err == nil && !there
		return err
	}
	for _, want := range []*unstructured.Unstructured{
		components.MonitoringBinding(r.Namespace, *account), components.ServiceMonitor(namespace, r.Namespace),
	} {
		if err := r.ensure(ctx, want); err != nil {
			return err
		}
	}
	return nil
}

// monitorAccount is Prometheus's service account, nil if there is none.
func (r *Reconciler) monitorAccount(ctx context.Context, asked components.Monitoring) (*types.NamespacedName, error) {
	for i := range asked.Accounts {
		if asked.Named {
			return &asked.Accounts[i], nil
		}
		err := r.Reader.Get(ctx, asked.Accounts[i], &corev1.ServiceAccount{})
		if err == nil {
			return &asked.Accounts[i], nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("looking for Prometheus's service account %s: %w", asked.Accounts[i], err)
		}
	}
	return nil, nil
}

// retireMonitors deletes the ServiceMonitors that were made here, but for that in the namespace.
func (r *Reconciler) retireMonitors(ctx context.Context, but string) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(components.ServiceMonitorKind)
	if err := r.Reader.List(ctx, list, client.MatchingFields{"metadata.name": components.ServiceMonitorName}); err != nil {
		return fmt.Errorf("listing the ServiceMonitors: %w", err)
	}
	for i := range list.Items {
		monitor := &list.Items[i]
		if monitor.GetNamespace() == but || !components.Ours(monitor.GetLabels()) {
			continue
		}
		if err := r.Client.Delete(ctx, monitor, client.Preconditions{UID: new(monitor.GetUID())}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the ServiceMonitor in the namespace %s: %w", monitor.GetNamespace(), err)
		}
	}
	return nil
}

// retireBinding deletes the RoleBinding of Prometheus's account.
func (r *Reconciler) retireBinding(ctx context.Context) error {
	var binding rbacv1.RoleBinding
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: components.MonitoringRole}, &binding)
	if err == nil && components.Ours(binding.Labels) {
		err = r.Client.Delete(ctx, &binding, client.Preconditions{UID: &binding.UID})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the RoleBinding %s: %w", components.MonitoringRole, err)
	}
	return nil
}

// ensure has an object be as it is to be. What can't be done because of what the KubeVirt object says is kept in monitors.
func (r *Reconciler) ensure(ctx context.Context, want *unstructured.Unstructured) error {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(want.GroupVersionKind())
	err := r.Reader.Get(ctx, client.ObjectKeyFromObject(want), live)
	if err == nil && components.Says(live.Object, want.Object) {
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the %s %s/%s: %w", want.GetKind(), want.GetNamespace(), want.GetName(), err)
	}
	err = r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(want), client.FieldOwner(components.Manager), client.ForceOwnership)
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) {
		r.monitors.refused = fmt.Sprintf("Prometheus is not told of the metrics: the %s in the namespace %s: %v", want.GetKind(), want.GetNamespace(), err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("applying the %s %s/%s: %w", want.GetKind(), want.GetNamespace(), want.GetName(), err)
	}
	return nil
}
