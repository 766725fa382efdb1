package kubevirt

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/controller/cdi"
	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/rules/cluster/components"
)

const (
	// monitorAgain is how often the monitoring setup is checked: a new namespace or authority causes no event.
	monitorAgain = 5 * time.Minute
	// awaitAuthorities is how often to look for virt-api's first authority.
	awaitAuthorities = 5 * time.Second
)

// monitors is the state of the monitoring setup.
type monitors struct {
	// nothing means that the operator's definition does not exist, and nothing that was created for it.
	nothing bool
	refused string
	// again is when to look again, 0 for the next event.
	again time.Duration
}

// monitor sets up the scraping of Drydock's metrics by Prometheus's operator, and its rules, as the KubeVirt object, which may be
// nil, configures. Without the operator, nothing is read or written.
func (r *Reconciler) monitor(ctx context.Context, kv *v1.KubeVirt) error {
	there, err := r.defined(ctx, components.ServiceMonitorDefinition)
	if err != nil {
		return err
	}
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
	// No object stays in another namespace.
	if there {
		if err := r.deleteAllOfKind(ctx, components.ServiceMonitorKind, components.ServiceMonitorName, namespace); err != nil {
			return err
		}
	}
	if err := r.deleteAllOfKind(ctx, components.AuthoritiesKind, components.MetricsAuthorities, namespace); err != nil {
		return err
	}
	if account == nil {
		err = r.deleteBinding(ctx)
	} else {
		err = r.applyMonitoring(ctx, namespace, *account)
	}
	// The rules are last: the operator's webhook fails while it does not run.
	err = errors.Join(err, r.applyRules(ctx, namespace))
	r.monitors.nothing = err == nil && !there
	return err
}

// applyRules creates the rules in the namespace, none for "", and deletes them elsewhere.
func (r *Reconciler) applyRules(ctx context.Context, namespace string) error {
	defined, err := r.defined(ctx, components.RulesDefinition)
	if err != nil || !defined {
		return err
	}
	if err := r.deleteAllOfKind(ctx, components.RulesKind, components.RulesName, namespace); err != nil {
		return err
	}
	if namespace == "" {
		return nil
	}
	return r.ensure(ctx, components.Rules(namespace))
}

func (r *Reconciler) defined(ctx context.Context, definition string) (bool, error) {
	err := r.Client.Get(ctx, client.ObjectKey{Name: definition}, cdi.Definition())
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("looking for the definition %s: %w", definition, err)
	}
	return err == nil, nil
}

// applyMonitoring creates the RoleBinding, the authorities and the ServiceMonitor for Prometheus, once virt-api has
// created the components' authority.
func (r *Reconciler) applyMonitoring(ctx context.Context, namespace string, account types.NamespacedName) error {
	trusted := &corev1.ConfigMap{}
	name := client.ObjectKey{Namespace: r.Namespace, Name: certs.TrustConfigMap}
	if err := r.Reader.Get(ctx, name, trusted); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the ConfigMap %s: %w", name, err)
	}
	bundle := trusted.Data[certs.MetricsTrust()]
	if bundle == "" {
		r.monitors.again = awaitAuthorities
		return nil
	}
	r.monitors.again = monitorAgain
	for _, want := range []*unstructured.Unstructured{
		components.MonitoringBinding(r.Namespace, account), components.Authorities(namespace, bundle),
		components.ServiceMonitor(namespace, r.Namespace, certs.MetricsName),
	} {
		if err := r.ensure(ctx, want); err != nil {
			return err
		}
	}
	return nil
}

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

// deleteAllOfKind deletes Drydock's objects of a name in namespaces other than but.
func (r *Reconciler) deleteAllOfKind(ctx context.Context, kind schema.GroupVersionKind, name, but string) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	if err := r.Reader.List(ctx, list, client.MatchingFields{"metadata.name": name}); err != nil {
		return fmt.Errorf("listing each %s %s: %w", kind.Kind, name, err)
	}
	for i := range list.Items {
		object := &list.Items[i]
		if object.GetNamespace() == but || !components.Ours(object.GetLabels()) {
			continue
		}
		if _, err := deletion.Exact(ctx, r.Client, object, "the "+kind.Kind); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) deleteBinding(ctx context.Context) error {
	var binding rbacv1.RoleBinding
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: components.MonitoringRole}, &binding)
	if err == nil && components.Ours(binding.Labels) {
		_, err = deletion.Exact(ctx, r.Client, &binding, "the RoleBinding")
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the RoleBinding %s: %w", components.MonitoringRole, err)
	}
	return nil
}

// Errors that come from the KubeVirt object's configuration are kept in monitors.
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
		r.monitors.refused = fmt.Sprintf("Prometheus is not told of the metrics or rules: the %s in the namespace %s: %v", want.GetKind(), want.GetNamespace(), err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("applying the %s %s/%s: %w", want.GetKind(), want.GetNamespace(), want.GetName(), err)
	}
	return nil
}
