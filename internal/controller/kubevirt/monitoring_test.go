package kubevirt

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/rules/cluster/components"
)

// operator is a cluster with the definitions of Prometheus's operator, whose webhook refuses the rules.
type operator struct {
	client.Client
	// there are kinds of objects that Drydock has created.
	there            []string
	applied, deleted []string
}

var errWebhook = errors.New("the webhook does not answer")

func (o *operator) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	switch object := object.(type) {
	case *corev1.ConfigMap:
		object.Data = map[string]string{certs.MetricsTrust(): "an authority"}
		return nil
	case *unstructured.Unstructured:
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return nil
}

func (o *operator) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	found := list.(*unstructured.UnstructuredList)
	if kind := found.GetKind(); slices.Contains(o.there, kind) {
		object := unstructured.Unstructured{}
		object.SetKind(kind)
		object.SetNamespace("watch")
		object.SetLabels(components.Rules("").GetLabels())
		found.Items = append(found.Items, object)
	}
	return nil
}

func (o *operator) Apply(_ context.Context, object runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	kind := object.(interface{ GetKind() string }).GetKind()
	o.applied = append(o.applied, kind)
	if kind == components.RulesKind.Kind {
		return errWebhook
	}
	return nil
}

func (o *operator) Delete(_ context.Context, object client.Object, _ ...client.DeleteOption) error {
	o.deleted = append(o.deleted, object.GetObjectKind().GroupVersionKind().Kind)
	return nil
}

func TestRulesThatAreRefusedKeepNothingElseAway(t *testing.T) {
	o := &operator{}
	r := &Reconciler{Client: o, Reader: o, Namespace: "kubevirt"}
	err := r.monitor(t.Context(), &v1.KubeVirt{Spec: v1.KubeVirtSpec{MonitorNamespace: "watch"}})
	if !errors.Is(err, errWebhook) {
		t.Errorf("the error is %v, want that of the webhook", err)
	}
	if want := []string{"RoleBinding", "ConfigMap", "ServiceMonitor", "PrometheusRule"}; !slices.Equal(o.applied, want) {
		t.Errorf("applied are %q, want %q", o.applied, want)
	}
	if r.monitors.again != monitorAgain {
		t.Errorf("the next look is after %s, want %s", r.monitors.again, monitorAgain)
	}
}

func TestWithoutAKubeVirtObjectPrometheusIsToldOfNothing(t *testing.T) {
	o := &operator{there: []string{"ServiceMonitor", "ConfigMap", "PrometheusRule"}}
	r := &Reconciler{Client: o, Reader: o, Namespace: "kubevirt"}
	if err := r.monitor(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if want := o.there; !slices.Equal(o.deleted, want) || len(o.applied) > 0 {
		t.Errorf("deleted are %q, want %q; applied are %q", o.deleted, want, o.applied)
	}
}
